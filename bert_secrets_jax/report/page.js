(() => {
{% include 'common.js' %}

// What is closed is part of what is printed, but for images of what is there already.
const closed = 'details:not([open], .image, .bs-grids)';
let opened = [];
addEventListener('beforeprint', () => {
  opened = [...document.querySelectorAll(closed)];
  for (const each of opened) each.open = true;
});
addEventListener('afterprint', () => {
  for (const each of opened) each.open = false;
});
const beginning = /^(?:L\d+(?:-H\d+)?\s+)?([<>~]?)\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)/i;
function keyOf(cell) {
  const text = cell.textContent.trim().replace(/[−–](?=[\d.])/g, '-');
  const [, sign, number] = text.replace(/,(?=\d{3})/g, '').match(beginning) ?? [];
  // "<.001" stands before .001, and ">.999" after .999.
  const value = Number(number) + ({'<': -1e-9, '>': 1e-9}[sign] ?? 0);
  return {text, value, kind: number ? 0 : /^[–-]?$|^nan$/i.test(text) ? 2 : 1};
}
function byKey(a, b) {
  return a.kind === 0 && a.value - b.value || a.text.localeCompare(b.text, 'en', {numeric: true});
}
// A click on a heading sorts its table by that column: ascending, descending, as it was. Numbers
// go by their value, "L2-H12 0.75" by 0.75; what has none stands after them, and an empty cell or a
// dash last of all.
function sortable(table) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.type = 'button';
    if (!head.textContent) button.setAttribute('aria-label', 'sort');
    button.append(...head.childNodes);
    head.append(button);
    button.onclick = () => {
      const next = {ascending: 'descending', descending: 'none'};
      const order = next[head.getAttribute('aria-sort')] ?? 'ascending';
      heads.forEach(each => each.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', order);
      const sign = {ascending: 1, descending: -1, none: 0}[order];
      const keyed = rows.map(row => ({row, key: keyOf(row.cells[column])}));
      if (sign) keyed.sort(({key: a}, {key: b}) => a.kind - b.kind || sign * byKey(a, b));
      body.append(...keyed.map(each => each.row));
    };
  });
}
document.querySelectorAll('.table > table').forEach(sortable);

// Tables with the numbers of heads, which a page holds as data until somebody asks for them.
const plain = value => value === null ? '–' : String(value);

function tableOf(caption, columns, rows) {
  const table = make('table', {},
    make('thead', {}, make('tr', {}, ...columns.map(name => make('th', {scope: 'col'}, name)))),
    make('tbody', {}, ...rows.map(row =>
      make('tr', {}, ...row.map(cell => make('td', {}, cell))))));
  sortable(table);
  return make('div', {}, make('p', {className: 'caption'}, caption),
    make('div', {className: 'table', tabIndex: 0, role: 'group', 'aria-label': caption}, table));
}

// A frame is called by its section, and by the rest of its name if that has several.
function titled(root, frame) {
  const section = root.closest('section'), topic = (section.querySelector('.part > summary small') ?? section.querySelector('h3')).textContent;
  const [, rest] = frame.name.match(/_(?:heads_)?([^_]+)$/) ?? [];
  const more = {heads: '', finetuned: 'fine-tuned'}[rest] ?? rest;
  return {...frame, title: more ? `${topic}: ${more}` : topic};
}

const everyGrid = [...document.querySelectorAll('.bs-grids')].map(root => ({
  root, address: root.dataset.address, layers: Number(root.dataset.layers), heads: Number(root.dataset.heads),
  frames: JSON.parse(root.querySelector('script').textContent).map(frame => titled(root, frame)),
}));

const ofHeads = frame => frame.axis === 'heads';

function nameAt(grid, at) {
  return `L${Math.floor(at / grid.heads) + 1}-H${at % grid.heads + 1}`;
}

// A number with all that its frame has to say of how sure it is: interval, error, p-values, sample.
function told(frame, set, column, at, times, start = 0) {
  const {columns, beside} = frame, {values} = frame.sets[set];
  const numberOf = place => values[place][at];
  const scaled = place => {
    const value = numberOf(place), name = columns[place];
    return shown(value === null ? null : /\b(?:low|high)\b/.test(name) ? start + times * value
      : /\b(?:error|deviation)\b/.test(name) ? Math.abs(times) * value : value);
  };
  const ends = (times < 0 ? ['high', 'low'] : ['low', 'high']).map(end => beside[column].find(place =>
    RegExp(`\\b${end}\\b`).test(columns[place])));
  const interval = ends.every(place => place !== undefined && numberOf(place) !== null)
    ? [`interval ${ends.map(scaled).join(' to ')}`] : [];
  return [...interval, ...beside[column].filter(place => !ends.includes(place) && numberOf(place) !== null)
    .map(place => `${columns[place]} ${scaled(place)}`)];
}

function key(scale) {
  return make('p', {className: 'key'}, brief(scale.low),
    make('i', {style: `background: linear-gradient(90deg, ${gradient(scale)})`}),
    brief(scale.high), ` ${scale.label} (${meaning(scale)})${scale.full ? `. ${FULL}` : ''}`);
}

// Kinds of heads look as in the atlas; an unknown one gets its look from its name (`plots/kinds.py`).
const {fills, patterns, kinds: known} = JSON.parse(document.getElementById('marks').textContent);

function markOf(word) {
  if (!Object.hasOwn(known, word)) {
    const number = [...word].reduce((sum, letter, at) => sum + (at + 1) * letter.codePointAt(0), 0);
    const [first, second] = word.split(/\s+/).filter(Boolean), taken = new Set(Object.values(known).map(each => each[2]));
    const letters = ((first ?? '?')[0] + (second ? second[0] : (first ?? '?').slice(1, 2))).toLowerCase();
    const tries = [letters, ...range(taken.size + 1).map(at => letters + (at + 2))];
    known[word] = [fills[number % fills.length], patterns[Math.floor(number / fills.length) % patterns.length],
      tries.find(each => !taken.has(each)), ''];
  }
  const [fill, pattern, letter, shape] = known[word];
  return {fill: channels(fill), pattern, letter, shape};
}

function legend(words) {
  return make('p', {className: 'key'}, ...words.map(word => {
    const {fill, letter, pattern, shape} = markOf(word);
    return make('span', {}, ...shape ? [sketch(shape), ' '] : [], make('i', {className: `mark ${pattern}`, style: `background-color: rgb(${fill})`}),
      make('b', {}, ` ${letter} `), word);
  }));
}

// The colour of a class, the paler the smaller its share.
function shade(word, share = 1) {
  const strength = Math.min(Math.max(0.35 + 0.65 * (share - 0.2) / 0.8, 0.35), 1);
  return markOf(word).fill.map(value => Math.round(255 + strength * (value - 255)));
}

// One stop of the tab key; arrows move among cells that stand in so many columns.
function walk(cells, columns, tell) {
  let tapped = false, last = null;
  cells.forEach((cell, place) => {
    cell.tabIndex = place ? -1 : 0;
    // Not when it enters: a page that scrolls under a resting pointer would take the word from the keyboard.
    cell.onpointermove = () => tell(place);
    // A finger cannot point: its first tap tells, its second one follows the link.
    cell.onpointerdown = ({pointerType}) => { tapped = pointerType === 'touch' && last !== cell; tell(place); };
    cell.onclick = event => { if (tapped) event.preventDefault(); last = cell; };
    cell.onfocus = () => {
      cells.forEach(each => { each.tabIndex = each === cell ? 0 : -1; });
      tell(place);
    };
    cell.onkeydown = event => {
      const column = place % columns;
      const to = {
        ArrowLeft: place - (column > 0), ArrowRight: place + (column < columns - 1),
        ArrowUp: place - columns, ArrowDown: place + columns,
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      cells[to]?.focus();
    };
  });
}

// The rows and columns of a grid of all heads, and the head of each cell.
const headsOf = grid => ({
  rows: range(grid.layers).map(layer => `L${layer + 1}`), columns: range(grid.heads).map(head => `H${head + 1}`),
  nameOf: at => nameAt(grid, at), linkOf: at => `#${grid.address}${nameAt(grid, at)}`,
});

// Cells with a number or a letter each. `sizes` puts the heads of each layer in their order.
function heat({rows, columns, nameOf, linkOf}, {title, saidOf, textOf, colourOf, tell, circles = [], patternOf = () => '', sizes}) {
  const size = at => sizes[at] ?? -Infinity, width = columns.length;
  const order = range(rows.length).flatMap(row => {
    const mine = range(width).map(column => row * width + column);
    return sizes ? mine.sort((one, other) => size(other) - size(one) || one - other) : mine;
  });
  const cells = order.map(at => {
    const colour = colourOf(at);
    const cell = make('a', {
      href: linkOf(at), className: `${['', 'open', 'filled'][circles[at] ?? 0]} ${patternOf(at)}`.trim(),
      'aria-label': `${nameOf(at)}, ${title} ${saidOf(at)}`,
    }, sizes ? columns[at % width] : textOf(at));
    if (colour) Object.assign(cell.style, {backgroundColor: `rgb(${colour})`, color: ink(colour)});
    return cell;
  });
  walk(cells, width, place => tell(order[place]));
  return make('table', {className: sizes ? 'heads sorted' : 'heads', 'aria-label': `${title}, every head`},
    make('tbody', {},
      make('tr', {}, make('td', {}), ...columns.map((name, place) =>
        make('th', {scope: 'col'}, make('span', {}, sizes ? `${place + 1}.` : name)))),
      ...rows.map((name, row) => make('tr', {}, make('th', {scope: 'row'}, name),
        ...cells.slice(row * width, (row + 1) * width).map(cell => make('td', {}, cell))))));
}

// A bar for each layer from 0 to its number, a line between its ends, dots at what was published.
function strip({title, values, ends, published = [], low, high, tell, sorted = false}) {
  const place = value => 100 * (value - low) / (high - low || 1);
  const span = (className, from, to) => from === null || to === null ? [] : [make('i', {
    className, style: `left: ${place(Math.min(from, to))}%; width: ${Math.abs(place(to) - place(from))}%`})];
  const order = range(values.length);
  if (sorted) order.sort((one, other) => (values[other] ?? -Infinity) - (values[one] ?? -Infinity));
  const rows = order.map(at => make('div', {
    className: 'layer', role: 'img', 'aria-label': `L${at + 1}, ${title} ${plain(values[at])}`,
  }, make('b', {}, `L${at + 1}`), make('span', {className: 'plot', style: `--zero: ${place(0)}%`},
    ...span('bar', 0, values[at]), ...span('ends', ends[0]?.[at] ?? null, ends[1]?.[at] ?? null)),
  make('span', {}, brief(values[at]))));
  walk(rows, 1, row => tell(order[row]));
  const strip = make('div', {className: 'layers', role: 'group', 'aria-label': `${title}, every layer`}, ...rows);
  // Layer l of another number of layers stands at the same relative depth.
  const depth = at => (0.5 + at * (values.length - 1) / Math.max(published.length - 1, 1)) / values.length;
  if (!sorted) for (const [at, value] of published.entries()) {
    if (value !== null) strip.append(make('i', {className: 'dot', 'aria-hidden': 'true',
      style: `--left: ${place(value) / 100}; top: ${100 * depth(at)}%`}));
  }
  return strip;
}

// Heads as points [{head, place, across, up, colour, mark, said}], lines at some heights
// [{className, from, to, height, colour}], and dots at what was published [{right, height}].
function cloud({points, lines, marks, across, up, ticks, nameOf, linkOf, title, heads, tell}) {
  const share = (value, {low, high}) => 100 * (value - low) / (high - low || 1);
  const drawn = points.filter(point => point.across !== null && point.up !== null);
  const cells = drawn.map(({head, across: right, up: height, colour, mark, said}) => {
    const cell = make('a', {href: linkOf(head), className: mark ? `lettered ${mark.pattern}`.trim() : '',
      'aria-label': `${nameOf(head)}, ${title}: ${said}`}, mark?.letter ?? '');
    Object.assign(cell.style, {left: `${share(right, across)}%`, bottom: `${share(height, up)}%`,
      backgroundColor: `rgb(${colour})`, color: ink(colour)});
    return cell;
  });
  walk(cells, heads, place => tell(drawn[place].place));
  const ruled = lines.map(({className, from, to, height, colour}) => make('i', {className, 'aria-hidden': 'true',
    style: `left: ${share(from, across)}%; width: ${share(to, across) - share(from, across)}%; bottom: ${share(height, up)}%${
      colour ? `; border-color: rgb(${colour})` : ''}`}));
  const dots = marks.map(({right, height}) => make('i', {className: 'dot', 'aria-hidden': 'true',
    style: `left: ${share(right, across)}%; bottom: ${share(height, up)}%`}));
  const beside = [...ticks.up.map(value => make('span', {className: 'up', style: `bottom: ${share(value, up)}%`}, value ? brief(value) : '0')),
    ...ticks.across.map(([value, name]) => make('span', {className: 'across', style: `left: ${share(value, across)}%`}, name))];
  const plane = make('div', {className: 'cloud', role: 'group', 'aria-label': `${title}, every head`},
    ...ruled, ...beside, ...cells, ...dots);
  // Directions without a meaning: the same length is the same distance either way.
  if (!ticks.up.length) plane.style.aspectRatio = String((across.high - across.low) / (up.high - up.low));
  return plane;
}

// Some room around what is drawn.
function around(values) {
  const known = values.flat(3).filter(value => value !== null), low = Math.min(...known), high = Math.max(...known);
  const room = 0.06 * (high - low || 1);
  return {low: low - room, high: high + room};
}

// The least and the greatest number, and 0 where it is on the axis; not those that would touch.
function ticksOf(values, {low, high}) {
  const known = values.flat(3).filter(value => value !== null), ends = [Math.min(...known), Math.max(...known)];
  const zero = low <= 0 && high >= 0 ? [0] : [];
  return [...zero, ...ends.filter((value, at) => [...zero, ...ends.slice(0, at)].every(other =>
    Math.abs(value - other) > 0.1 * (high - low)))];
}

// The ends of an axis of bars, which begin at 0.
function axisOf(numbers) {
  const known = numbers.flat(3).filter(value => value !== null);
  return {low: Math.min(0, ...known), high: Math.max(0, ...known)};
}

const listOf = (names, linkOf, caption, columns, numbersOf) =>
  tableOf(caption, [linkOf ? 'head' : 'layer', ...columns], names.map((name, at) => [
    linkOf ? make('a', {href: linkOf(at)}, name) : name, ...numbersOf(at)]));
const everyHead = grid => range(grid.layers * grid.heads).map(at => nameAt(grid, at));
const everyLayer = count => range(count).map(layer => `L${layer + 1}`);

const LIST = 'as a list';
const WAYS = {
  heads: ['as a grid', 'as a grid, the heads of each layer sorted', LIST],
  classes: ['as a grid', 'as a grid, the heads of each layer sorted', LIST],
  features: ['as a grid', LIST],
  layers: ['as bars', 'as bars, sorted', LIST],
  points: ['as points', LIST],
};
const offer = (select, names) => select.replaceChildren(...names.map(name => make('option', {}, name)));
const isSorted = way => way.value.endsWith('sorted');

// All numbers of a result: a set of them is chosen, and one of its columns colours the heads.
function build(grid) {
  const {frames} = grid;
  const sets = frames.flatMap(frame => frame.sets.map((set, number) => ({frame, set, number})));
  const choice = make('select', {'aria-label': 'Numbers of'}, ...frames.map(frame =>
    make('optgroup', {label: frame.title}, ...frame.sets.map(set =>
      make('option', {}, set.of || frame.title)))));
  const column = make('select', {'aria-label': 'Coloured by'}), way = make('select', {'aria-label': 'Shown'});
  const readout = make('output', {'aria-live': 'polite'}), place = make('div', {});
  const chosen = () => sets[choice.selectedIndex];

  function columns() {
    const {frame, set} = chosen(), before = column.value, names = [...frame.columns, ...set.classes.map(([name]) => name)];
    offer(column, names);
    // The first that differs between heads: the number of examples, for one, does not.
    const varied = set.values.findIndex(values => new Set(values).size > 1);
    column.selectedIndex = names.includes(before) ? names.indexOf(before) : Math.max(varied, 0);
    const shownAs = way.selectedIndex;
    offer(way, WAYS[frame.axis]);
    way.selectedIndex = Math.max(shownAs, 0);
  }

  function tell(at) {
    const {frame, set, number} = chosen(), mine = column.selectedIndex, beside = frame.beside[mine] ?? [];
    const others = range(frame.columns.length).filter(index => index !== mine && !beside.includes(index))
      .map(index => `${frame.columns[index]} ${plain(set.values[index][at])}`);
    const words = set.classes.map(([name, words]) => `${name}: ${words[at]}`);
    const numbers = mine < frame.columns.length
      ? [`${frame.columns[mine]} ${plain(set.values[mine][at])}`, ...told(frame, number, mine, at, 1)] : [];
    const name = ofHeads(frame) ? nameAt(grid, at) : `L${at + 1}`;
    readout.textContent = `${name}${set.of && `, ${set.of}`}: ${[...numbers, ...others, ...words].join(', ')}.`;
  }

  function drawing() {
    const {frame, set} = chosen(), mine = column.selectedIndex, title = column.value;
    const values = set.values[mine], sorted = isSorted(way);
    if (!ofHeads(frame)) {
      const ends = ['low', 'high'].map(end => set.values[frame.beside[mine].find(place =>
        RegExp(`\\b${end}\\b`).test(frame.columns[place]))] ?? []);
      return [strip({title, values, ends, ...axisOf([values, ends]), tell, sorted})];
    }
    if (mine >= frame.columns.length) {
      const [, words] = set.classes[mine - frame.columns.length], kinds = [...new Set(words)].sort();
      return [heat(headsOf(grid), {
        title, saidOf: at => words[at], textOf: at => markOf(words[at]).letter, colourOf: at => shade(words[at]),
        patternOf: at => markOf(words[at]).pattern, tell,
        sizes: sorted ? words.map(word => -kinds.indexOf(word)) : undefined,
      }), legend(kinds)];
    }
    const red = redOf(frame, set, mine), scale = {...spanOf(values, red), label: title, full: red !== 0}, paint = painter(scale);
    return [heat(headsOf(grid), {
      title, saidOf: at => plain(values[at]), textOf: at => brief(values[at]), colourOf: at => paint(values[at]),
      tell, sizes: sorted ? values : undefined,
    }), key(scale)];
  }

  function draw() {
    const {frame, set} = chosen(), heads = ofHeads(frame);
    readout.textContent = `Point at a ${heads ? 'head' : 'layer'}, or tap it, for its numbers.`;
    if (way.value === LIST) {
      const {linkOf} = headsOf(grid);
      place.replaceChildren(listOf(
        heads ? everyHead(grid) : everyLayer(grid.layers), heads && linkOf, frame.caption,
        [...frame.columns, ...set.classes.map(([name]) => name)],
        at => [...set.values.map(each => shown(each[at])), ...set.classes.map(([, words]) => words[at])]));
      return;
    }
    place.replaceChildren(...drawing(), make('p', {className: 'note'}, frame.caption));
  }

  choice.onchange = () => { columns(); draw(); };
  column.onchange = way.onchange = draw;
  columns();
  draw();
  grid.root.append(make('div', {className: 'controls'}, make('label', {}, 'Numbers of ', choice),
    make('label', {}, 'coloured by ', column), make('label', {}, 'shown ', way)), place, readout);
}

// What is empty in the numbers of figures.
const filled = ({panels, ...drawn}) => ({
  across: '', published: '', ...drawn,
  panels: panels.map(panel => ({circles: [], across: [], kinds: [], published: drawn.kind === 'points' ? {} : [], ...panel})),
});

// What a figure shows, in place of its image, which stays one click away. Each kind says how a panel
// is drawn, what is told where one points, and what the list has.
const DRAWINGS = {
  heads({label, low, high, panels}, {grid, beside}) {
    const full = panels.some(({sets: [{rows: [from]}]}) => from && grid.frames[from[0]].sets[from[1]].red[from[2]]);
    const scale = {low, high, label, full}, circled = ({circles}, at) =>
      [[], ['open circle'], ['filled circle']][circles[at] ?? 0];
    return {
      rows: everyHead(grid), key: key(scale),
      panel({title, circles, sets: [{values}]}, tell, sorted) {
        const paint = painter(scale);
        return heat(headsOf(grid), {
          title, circles, saidOf: at => plain(values[at]), textOf: at => brief(values[at]),
          colourOf: at => paint(values[at]), tell, sizes: sorted ? values : undefined,
        });
      },
      said: (panel, at) => [nameAt(grid, at), panel.title,
        [shown(panel.sets[0].values[at]), ...beside(panel.sets[0], at), ...circled(panel, at)]],
      columns: panels.flatMap(({title}) => [title, '']),
      numbers: at => panels.flatMap(({sets: [one]}) => [shown(one.values[at]), beside(one, at).join(', ')]),
    };
  },
  classes({panels}, {grid, beside}) {
    const order = ({sets}, at) => [...sets].sort((one, other) => other.values[at] - one.values[at]);
    const most = (panel, at) => order(panel, at)[0];
    return {
      rows: everyHead(grid), key: legend(panels[0].sets.map(({of}) => of)),
      panel(panel, tell, sorted) {
        const {title, sets} = panel;
        return heat(headsOf(grid), {
          title, saidOf: at => most(panel, at).of, textOf: at => markOf(most(panel, at).of).letter,
          colourOf: at => shade(most(panel, at).of, most(panel, at).values[at]),
          patternOf: at => markOf(most(panel, at).of).pattern, tell,
          // By class, and those of a class by its share, which is 1 at most.
          sizes: sorted ? everyHead(grid).map((_, at) =>
            most(panel, at).values[at] - 2 * sets.indexOf(most(panel, at))) : undefined,
        });
      },
      said: (panel, at) => [nameAt(grid, at), panel.title, order(panel, at).filter(({values}) => values[at] > 0)
        .map(one => [`${one.of} ${shown(one.values[at])}`, ...beside(one, at)].join(', '))],
      columns: panels.flatMap(({title}) => [title, 'share', '']),
      numbers: at => panels.flatMap(panel => [most(panel, at)].flatMap(one =>
        [one.of, shown(one.values[at]), beside(one, at).join(', ')])),
    };
  },
  features({label, low, high, panels, layer}, {grid, beside}) {
    const scale = {low, high, label}, names = panels[0].sets.map(({of}) => of);
    const count = panels[0].shape[0], nameOf = head => `L${layer + 1}-H${head + 1}`;
    const heads = at => Math.floor(at / names.length), one = ({sets}, at) => sets[at % names.length];
    const link = head => `#${grid.address}${nameOf(head)}`;
    const cells = {
      rows: range(count).map(head => `H${head + 1}`), columns: names,
      nameOf: at => `${nameOf(heads(at))}, ${names[at % names.length]}`, linkOf: at => link(heads(at)),
    };
    return {
      rows: range(count).map(nameOf), linkOf: link, key: key(scale),
      panel(panel, tell) {
        const paint = painter(scale), value = at => one(panel, at).values[heads(at)];
        return heat(cells, {title: panel.title, saidOf: at => plain(value(at)), textOf: at => brief(value(at)),
          colourOf: at => paint(value(at)), tell});
      },
      said: (panel, at) => [cells.nameOf(at), panel.title, [shown(one(panel, at).values[heads(at)]),
        ...beside(one(panel, at), layer * count + heads(at))]],
      columns: panels.flatMap(({title}) => names.map(name => `${title}: ${name}`)),
      numbers: head => panels.flatMap(({sets}) => sets.map(({values}) => shown(values[head]))),
    };
  },
  layers({label, ends: between, published: name, panels}, {beside}) {
    const axis = axisOf(panels.map(({sets, ends, published}) => [sets[0].values, ends, published]));
    const count = panels[0].shape[0], dots = panels.some(({published}) => published.length);
    const more = ({sets: [one], ends, published}, at) => {
      const known = beside(one, at), around = known.some(each => each.startsWith('interval')) ? []
        : [`${between} ${ends.map(each => shown(each[at])).join(' to ')}`];
      // What is stretched over the same depth is no number of this layer.
      return [...around, ...known, ...published.length === count ? [`${name || 'published'} ${shown(published[at])}`] : []];
    };
    return {
      rows: everyLayer(count), linkOf: null, word: 'layer',
      key: make('p', {className: 'key layers'}, make('span', {}, make('i', {className: 'bar'}), ` ${label}`),
        make('span', {}, make('i', {className: 'ends'}), ` ${between}`),
        ...dots ? [make('span', {}, make('i', {className: 'dot'}), ` ${name || 'published'}`)] : []),
      panel: ({title, sets: [{values}], ends, published}, tell, sorted) =>
        strip({title, values, ends, published, ...axis, tell, sorted}),
      said: (panel, at) => [`L${at + 1}`, panel.title, [shown(panel.sets[0].values[at]), ...more(panel, at)]],
      columns: panels.flatMap(({title}) => [title, '']),
      numbers: at => panels.flatMap(panel => [shown(panel.sets[0].values[at]), more(panel, at).join(', ')]),
    };
  },
  points({label, across: word, published: from, panels}, {grid, beside}) {
    const [layers, heads] = panels[0].shape, layerOf = head => Math.floor(head / heads) + 1;
    const placed = panels.some(({across}) => across.length), names = [...new Set(panels.flatMap(({sets}) => sets.map(({of}) => of)))];
    const kinds = [...new Set(panels[0].kinds)], several = names.length > 1;
    // Names have no letters, so that nobody takes their colours for classes of the atlas.
    const tint = of => channels(fills[names.indexOf(of) % fills.length]);
    const byLayer = {low: 1, high: layers, label: 'layer'}, paint = painter(byLayer);
    const colourOf = (of, head, kind) => kind !== undefined ? markOf(kind).fill : several ? tint(of) : paint(layerOf(head));
    const all = panels.map(({sets}) => sets.map(({values}) => values));
    const up = around(label ? [...all, panels.map(each => Object.values(each.published)), 0] : all);
    // Where several numbers of a head stand above its layer, they stand beside each other.
    const shift = (set, count) => 0.6 / count * (set - (count - 1) / 2);
    const meanOf = values => values.reduce((sum, value) => sum + value, 0) / values.length;
    const numbersOf = ({across, sets, kinds}, at) => {
      const head = at % (layers * heads), one = sets[Math.floor(at / (layers * heads))];
      const height = label ? [`${one.of || label} ${shown(one.values[head])}`, ...beside(one, head)] : [];
      return [...kinds.length ? [kinds[head]] : [], ...placed && label ? [`${word} ${shown(across[head])}`] : [], ...height];
    };
    return {
      rows: everyHead(grid),
      key: make('div', {}, ...kinds.length ? [legend(kinds)] : several ? [] : [key(byLayer)],
        make('p', {className: 'key points'},
          ...several ? names.map(of => make('span', {}, make('i', {className: 'name', style: `background-color: rgb(${tint(of)})`}), ` ${of}`)) : [],
          ...placed ? [] : [make('span', {}, make('i', {className: 'mean'}), ' mean of a layer')],
          ...from && panels.some(({published}) => Object.keys(published).length)
            ? [make('span', {}, make('i', {className: 'dot'}), ` ${from}`)] : [])),
      panel(panel, tell) {
        const {title, sets, across: places, kinds, published} = panel, count = sets.length;
        const across = placed ? around(places) : {low: 0.4, high: layers + 0.6};
        const rightOf = (set, head) => placed ? places[head] : layerOf(head) + shift(set, count);
        const points = sets.flatMap(({of, values}, set) => values.map((value, head) => ({
          head, place: set * layers * heads + head, across: rightOf(set, head), up: value, colour: colourOf(of, head, kinds[head]),
          mark: kinds.length ? markOf(kinds[head]) : undefined, said: numbersOf(panel, set * layers * heads + head).join(', '),
        })));
        const width = 0.6 / count, means = placed ? [] : sets.flatMap(({of, values}, set) => range(layers).map(layer => ({
          className: 'mean', height: meanOf(values.slice(layer * heads, (layer + 1) * heads)), colour: several ? tint(of) : null,
          from: layer + 1 + shift(set, count) - width / 2, to: layer + 1 + shift(set, count) + width / 2,
        })));
        return cloud({
          points, title: panels.length > 1 ? title : label || title, heads, tell, across, up, nameOf: head => nameAt(grid, head),
          linkOf: headsOf(grid).linkOf,
          lines: [...label ? [{className: 'zero', from: across.low, to: across.high, height: 0}] : [], ...means],
          marks: sets.flatMap(({of}, set) => (published[of] ?? []).flatMap((height, layer) => height === null ? []
            : [{right: layer + 1 + shift(set, count), height}])),
          ticks: {up: label ? ticksOf(all, up) : [],
            across: !label ? [] : placed ? ticksOf(places, across).map(value => [value, brief(value)]) : everyLayer(layers).map((name, at) => [at + 1, name])},
        });
      },
      said: (panel, at) => [nameAt(grid, at % (layers * heads)), panel.title, numbersOf(panel, at)],
      columns: panels.flatMap(({title, sets, kinds}) => [...kinds.length ? ['kind'] : [], ...placed && label ? [`${title}: ${word}`] : [],
        ...label ? sets.map(({of}) => panels.length > 1 && !placed ? `${title}: ${of || label}` : of || label) : []]),
      numbers: head => panels.flatMap(({across, sets, kinds}) => [...kinds.length ? [kinds[head]] : [],
        ...placed && label ? [shown(across[head])] : [], ...label ? sets.map(({values}) => shown(values[head])) : []]),
    };
  },
};

function redraw(figure) {
  const drawn = filled(JSON.parse(figure.querySelector('script').textContent)), {kind, panels, label} = drawn;
  const grid = everyGrid.find(({root}) => figure.closest('section').contains(root)) ??
    {frames: [], layers: panels[0].shape[0], heads: panels[0].shape[1], address: figure.dataset.address};

  // What the frame of a number has to say of it, or of the numbers that it is the mean of.
  function beside({rows, times, start}, at) {
    if (!rows.length) return [];
    const [[place, first, column]] = rows, frame = grid.frames[place];
    if (kind === 'layers' && frame.axis === 'heads') return [`mean of ${grid.heads} heads`];
    if (rows.length === 1) return told(frame, first, column, at, times, start);
    const each = rows.map(([, set]) => frame.sets[set].values[column][at]).filter(value => value !== null);
    const ends = [Math.min(...each), Math.max(...each)].map(value => start + times * value).sort((a, b) => a - b);
    return each.length ? [`mean of ${rows.length} fine-tunings, ${ends.map(shown).join(' to ')}`] : [];
  }

  const readout = make('output', {'aria-live': 'polite'}), place = make('div', {className: `panels of-${kind}`});
  const way = make('select', {'aria-label': 'Shown'}), scale = make('div', {});
  offer(way, WAYS[kind]);

  function draw() {
    const {rows, linkOf = headsOf(grid).linkOf, word = 'head', panel, said, columns, numbers, key} =
      DRAWINGS[kind](drawn, {grid, beside});
    const tell = each => at => {
      const [name, title, parts] = said(each, at);
      readout.textContent = `${name}, ${title}: ${parts.join(', ')}.`;
    };
    readout.textContent = `Point at a ${word}, or tap it, for its numbers.`;
    place.classList.toggle('one', panels.length === 1);
    place.replaceChildren(...way.value === LIST ? [listOf(rows, linkOf, label, columns, numbers)]
      : panels.map(each => make('div', {},
        ...panels.length > 1 ? [make('p', {className: 'title'}, each.title)] : [],
        panel(each, tell(each), isSorted(way)))));
    scale.replaceChildren(key);
  }

  way.onchange = draw;
  draw();
  figure.prepend(place, readout, make('div', {className: 'controls'}, scale, make('label', {}, 'Shown ', way)));
  figure.querySelector('.image').open = false;
}
document.querySelectorAll('.bs-figure').forEach(redraw);

for (const grid of everyGrid) {
  grid.root.addEventListener('toggle', () => { if (!grid.root.querySelector('output')) build(grid); });
}

// At most ten lines of what is known of a head, from the atlas.
function inWords(address, name) {
  const said = document.querySelector(`.bs-atlas a.head[href="#${CSS.escape(address)}${name}"]`)?.dataset.said ?? '';
  return said.split(/(?<=[.!?]) (?=[A-Z])/).filter(Boolean).slice(0, 10).map(each => {
    const line = make('p', {className: 'said'}, each);
    line.dataset.address = address;
    return line;
  });
}

// All numbers of one head, below its maps or, without maps, below the atlas.
function card(address, name) {
  document.querySelectorAll(`:is(.card, .said)[data-address="${address}"]`).forEach(each => each.remove());
  const mine = everyGrid.filter(grid => grid.address === address);
  const [, layer, head] = name?.match(/^L(\d+)-H(\d+)$/) ?? [];
  if (!mine.length || !(layer >= 1 && layer <= mine[0].layers && head >= 1 && head <= mine[0].heads)) return;
  const at = (layer - 1) * mine[0].heads + Number(head) - 1;
  const tables = mine.flatMap(({frames}) => frames.filter(ofHeads).map(({caption, columns, sets}) =>
    tableOf(caption, ['', ...columns, ...sets[0].classes.map(([name]) => name)], sets.map(set =>
      [set.of, ...set.values.map(values => shown(values[at])), ...set.classes.map(([, words]) => words[at])]))));
  const words = inWords(address, name);
  const whole = make('section', {className: 'card', 'aria-label': `All numbers of ${name}`});
  const numbers = make('details', {open: !words.length},
    make('summary', {}, make('h3', {}, `All numbers of ${name}`)), ...tables);
  const explorer = document.querySelector(`.bs-explorer[data-address="${address}"] .detail`);
  whole.dataset.address = address;
  // Words stand above the maps of a head, its numbers below them.
  if (explorer) {
    explorer.querySelector('.bar').after(...words);
    whole.append(numbers);
    explorer.append(whole);
  } else {
    whole.append(...words.length ? [make('h3', {}, name), ...words] : [], numbers);
    document.getElementById(`${address}heads`)?.parentElement.append(whole);
    whole.scrollIntoView({block: 'nearest'});
  }
}
addEventListener('bs-head', ({target, detail}) => {
  if (detail.head) unfold(target);
  card(detail.address, detail.head);
});

// The numbers that most readers ask for, in their words: frame, set, column, how often it is taken
// and from which number on, and its unit.
const ASKED_FOR = [
  ['harm to telling texts apart', /^ablation\w*heads_outcomes$/, /discrimination/, /^difference$/, 1, 0, 'nats'],
  ['effect of losing it', /^ablation_heads$/, /./, /^difference$/, 100, 0, 'points'],
  ['effect of losing it', /^(?:ablation|masked_lm)\w*heads/, /./, /difference|effect|^mean\b/],
  ['importance', /^importance_heads$/, /./, /./],
  ['change by fine-tuning', /^attention_change_heads/, /cosine/, /^mean$/, -1, 1, '1 - similarity'],
];

// All numbers of heads, with a group and a title each.
function numbersOf(frames, setsOf) {
  return frames.filter(ofHeads).flatMap(frame => setsOf(frame).flatMap(set => frame.about.map(column => ({
    frame: frame.name, group: frame.title, caption: frame.caption, of: set.of, column: frame.columns[column], values: set.values[column],
    red: redOf(frame, set, column), ...sureOf(frame, set, column),
    title: [set.of, frame.columns[column] === 'mean' && set.of ? '' : frame.columns[column]].filter(Boolean).join(', '),
  }))));
}

// A number in the words and in the unit in which readers ask for it.
function askedFor(numbers) {
  const found = ASKED_FOR.flatMap(([title, frame, set, column, times = 1, start = 0, unit = '']) => {
    const one = numbers.find(each => frame.test(each.frame) && (!each.of || set.test(each.of)) && column.test(each.column));
    // A caption of the number that it is made of would say the opposite.
    return !one ? [] : [{...one, group: 'most asked for', key: title, caption: start ? '' : one.caption,
      title: `${title} (${[one.of, unit || one.column].filter(Boolean).join(', ')})`,
      red: times * one.red, values: one.values.map(value => value === null ? null : start + times * value)}];
  });
  return [...new Map(found.reverse().map(each => [each.key, each])).values()].reverse();
}

// Several fine-tunings of one recipe as their mean, and without p-values, which are of one each.
function overSeeds({sets, columns}) {
  const together = of => of.replace(/(?:^|, )seed [^,]+/, '').replace(/^, /, '');
  return [...Map.groupBy(sets, ({alike}) => alike).values()].map(alike => ({of: together(alike[0].of), alike: together(alike[0].of), red: alike[0].red, values: alike.length === 1 ? alike[0].values
    : columns.map((name, column) => alike[0].values[column].map((_, head) => {
      const known = alike.map(({values}) => values[column][head]).filter(value => value !== null);
      return known.length && !/\bp\b/.test(name) ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
    }))}));
}

// The head with the most of each, which search finds; of effects not where the model has learnt nothing.
const greatest = [];
const isNoise = title => title !== 'change by fine-tuning'
  && [...document.querySelectorAll('.warning')].some(({textContent}) => textContent.includes('Not learnt'));

// All of them can colour and sort the heads of the explorer, and colour those of the atlas.
for (const place of document.querySelectorAll('.bs-explorer, .bs-atlas')) {
  const frames = everyGrid.filter(grid => grid.address === place.dataset.address).flatMap(grid => grid.frames);
  let numbers = numbersOf(frames, place.matches('.bs-atlas') ? overSeeds : ({sets}) => sets);
  if (place.matches('.bs-atlas')) {
    const first = askedFor(numbers);
    for (const {title, values, sure} of first.filter(({key}) => !isNoise(key))) {
      const at = values.reduce((most, value, each) => Math.abs(value) > Math.abs(values[most]) ? each : most, 0);
      const {layers, heads, address} = everyGrid.find(grid => grid.address === place.dataset.address);
      const name = nameAt({layers, heads}, at);
      greatest.push({text: `Greatest ${title}: ${name} (${shown(values[at])}). ${sure}`.trim(), to: `#${address}${name}`});
    }
    // What is the same for all heads does not colour them.
    numbers = [...first, ...numbers].filter(({values}) => new Set(values).size > 1);
  }
  place.dispatchEvent(new CustomEvent('bs-numbers', {detail: numbers}));
}

// The p-values that the strictest verdict on a number is made of: the corrected ones, if there are any.
function testsOf({columns, beside}, column) {
  const tested = beside[column].filter(at => /\bp\b/.test(columns[at]) && !/TOST/.test(columns[at]));
  const corrected = tested.filter(at => /corrected|holm|family/.test(columns[at]));
  return corrected.length ? corrected : tested.slice(0, 1);
}

// Which heads are significant by all of these tests, and what a legend says of it.
function sureOf(frame, {values}, column) {
  const tests = testsOf(frame, column).filter(at => values[at].some(value => value !== null));
  if (!tests.length) return {sure: '', significant: null};
  const significant = values[column].map((_, head) => tests.every(at => values[at][head] !== null && values[at][head] <= 0.05));
  const count = significant.filter(Boolean).length, names = tests.map(at => frame.columns[at]).join(', ');
  return {significant, sure: count ? `With a dot: significant (${count} of ${significant.length} heads; ${names}: at most 0.05).`
    : `No effect shown: ${tests.length > 1 ? 'one of ' : ''}${names} is above 0.05 for every head.`};
}

// The change that is fully red. One of several fine-tunings varies more than their mean, as the root of their number.
function redOf({sets}, {of, alike, red}, column) {
  const seeds = of === alike ? 1 : sets.filter(set => set.alike === alike).length;
  return red[column] * Math.sqrt(seeds);
}

// What the address of the page names; a broken one names nothing.
function named() {
  try { return decodeURI(location.hash); } catch { return ''; }
}

function follow() {
  const [, address, name] = named().match(/^#(.*?)(L\d+-H\d+)$/) ?? [];
  for (const each of new Set(everyGrid.map(grid => grid.address))) {
    const explorer = document.querySelector(`.bs-explorer[data-address="${each}"]`);
    if (each === address) card(each, name);
    // An explorer says itself what is opened in it.
    else if (!explorer) card(each, null);
  }
}
addEventListener('hashchange', follow);
follow();

// On a telephone the page is first a list of its sections. Whatever an address names is unfolded.
function unfold(element) {
  for (let each = element.closest('details'); each; each = each.parentElement.closest('details')) each.open = true;
}

function reveal() {
  const name = named().slice(1), part = document.getElementById(name)?.querySelector('.part');
  const [, address] = name.match(/^(.*?)L\d+-H\d+$/) ?? [];
  const explorer = document.querySelector(
    `.bs-explorer[data-address="${CSS.escape(address)}"]:has(.detail:not([hidden]))`);
  const shown = part ?? explorer;
  if (shown) unfold(shown);
  return shown;
}
addEventListener('hashchange', reveal);
addEventListener('click', ({target}) => {
  // A second click on the same link changes no address.
  if (target.closest('a[href^="#"]')?.hash === location.hash) reveal();
});
if (matchMedia('screen and (max-width: 48rem)').matches) {
  document.documentElement.classList.add('folded');
  for (const part of document.querySelectorAll('.part')) part.open = false;
  reveal()?.scrollIntoView();
}

// What readers type, in words of their own, and what it leads to.
const MEANT = [
  [/^(?:important|importance|matters?|needed|necessary|loss|losing|remov\w*|prun\w*|disabl\w*)$/, /importan|matter|needed|necessary|without it|losing|disabl|prun/i, 'what losing a head does'],
  [/^(?:unimportant|useless|unneeded|idle)$/, /importan|matter|needed|better without|without it|prun|idle|inactive/i, 'heads that can go'],
  [/^(?:chang\w*|train\w*|fine-?tun\w*|learn\w*)$/, /chang|fine-tun/i, 'what training changed'],
  [/^(?:previous|preceding|before|left)$/, /previous/i, 'attention to the previous token'],
  [/^(?:next|following|after|right)$/, /next token/i, 'attention to the next token'],
  [/^words?$/, /token|word/i, 'tokens are words or pieces of them'],
  [/^(?:same|itself|self)$/, /\bself\b|itself/i, 'attention to the token itself'],
  [/^(?:separators?|sep|end)$/, /\[SEP\]/i, 'the separator is [SEP]'],
  [/^(?:start|first|cls|beginning)$/, /\[CLS\]/i, 'the first token is [CLS]'],
  [/^(?:punctuation|commas?|periods?|stops?|dots?)$/, /period or comma|punctuation/i, 'punctuation'],
  [/^(?:subjects?|nsubj)$/, /subject|nsubj/i, 'the subject of a verb'],
  [/^(?:objects?|dobj)$/, /\bobject|\bd?obj\b/i, 'the object of a verb'],
  [/^(?:syntax|grammar|syntactic|dependenc\w*|relations?)$/, /relation|dependenc|synta|\blinks?\b|subject|object/i, 'relations between words'],
  [/^(?:meaning|semantic\w*|frames?|roles?)$/, /frame|semantic|\brole/i, 'meaning'],
  [/^(?:everywhere|uniform\w*|spread|broad\w*)$/, /broad|entropy|heterogeneous/i, 'attention that is spread out'],
  [/^(?:position\w*|distance|offset)$/, /position|offset|diagonal|previous|next token/i, 'position'],
  [/^(?:sure|certain\w*|significan\w*)$/, /significan|interval|p = /i, 'how sure it is'],
];
const FILLER = new Set('a an and any are at by can did do does for how i in is it most of on the there to what where which who why you with look looks looking attend attends head heads'.split(' '));

// Sections, heads and sentences by what is typed.
const found = [
  ...greatest,
  ...[...document.querySelectorAll('h2, .part > summary h3')].map(each => ({
    text: each.textContent, to: `#${each.id || each.closest('section').id}`,
  })),
  ...[...document.querySelectorAll('.bs-atlas a.head')].map(each => ({
    text: each.getAttribute('aria-label'), to: each.getAttribute('href'), head: each,
  })),
  ...[...document.querySelectorAll('.part > p:not(.names), .more > p:not(.note, .file, .caption), figcaption > bdi')]
    .map(each => ({
      text: each.textContent.trim(), to: `#${each.closest('section').id}`, within: each.closest('.more'),
    })),
  ...[...document.querySelectorAll('.bs-atlas')].flatMap(atlas => [...atlas.querySelectorAll('.bar option')].map((option, at) => ({
    text: `Colour the heads by ${option.textContent}`, to: `#${atlas.dataset.address}heads`,
    act: () => { option.closest('select').selectedIndex = at; option.closest('select').onchange(); },
  }))),
];
const asked = make('input', {
  type: 'search', placeholder: 'Search this page', 'aria-label': 'Search this page',
});
const answers = make('ul', {hidden: true, 'aria-label': 'Found'}), MOST = 12;
asked.oninput = () => {
  const typed = asked.value.toLowerCase().split(/[\s?!,]+/).filter(Boolean), told = typed.filter(word => !FILLER.has(word));
  const words = told.length ? told : typed;
  const meant = words.map(word => MEANT.filter(([said]) => said.test(word)));
  // "L6-H1" is not meant by L6-H10 as long as there is an L6-H1; what has the words stands before what they mean.
  const says = (text, word) => text.toLowerCase().includes(word);
  const rank = ({text, why}) => text.toLowerCase().split(/[\s,]+/).includes(words[0]) && !why ? 0 : why ? 2 : 1;
  const hits = words.length ? found.flatMap(each => {
    const literal = words.map(word => says(each.text, word));
    if (!words.every((_, at) => literal[at] || meant[at].some(([, reached]) => reached.test(each.text)))) return [];
    const why = meant.flatMap((ways, at) => literal[at] ? [] : ways.slice(0, 1).map(([, , reason]) => reason));
    return [{...each, why: why.join(', ')}];
  }) : [];
  hits.sort((a, b) => rank(a) - rank(b));
  // The same head stands in several grids.
  const own = [...new Map(hits.map(hit => [`${hit.to} ${hit.text}`, hit])).values()];
  answers.hidden = !words.length;
  answers.replaceChildren(...own.slice(0, MOST).map(({text, to, within, act, why}) =>
    make('li', {}, make('a', {
      href: to,
      onclick: () => {
        answers.hidden = true;
        if (within) unfold(within);
        act?.();
      },
    },
      text.length > 160 ? `${text.slice(0, 159)}…` : text, ...why ? [make('small', {}, ` (${why})`)] : []))));
  if (own.length > MOST) answers.append(make('li', {}, `And ${own.length - MOST} more: another word leaves fewer.`));
  if (words.length && !hits.length) answers.append(make('li', {}, 
    'Nothing on this page. Ask for a head (L6-H5) or in words: most important head, previous word, subject, separator, what changed.'));
};
document.querySelector('.search').onkeydown = event => {
  const links = [asked, ...answers.querySelectorAll('a')], at = links.indexOf(document.activeElement);
  if (event.key === 'Escape') { answers.hidden = true; asked.focus(); }
  if (event.key === 'Enter' && at === 0) links[1]?.click();
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  if (!step) return;
  event.preventDefault();
  links[at + step]?.focus();
};
document.querySelector('.search').append(asked, answers);
addEventListener('pointerdown', ({target}) => { if (!target.closest('.search')) answers.hidden = true; });
asked.onfocus = () => { answers.hidden = !asked.value.trim(); };

// An address that leads nowhere says so.
const lost = make('p', {className: 'note', role: 'status', hidden: true});
document.querySelector('.search').after(lost);
function missed() {
  const [, address, layer, head] = named().match(/^#(.*?)L(\d+)-H(\d+)$/i) ?? [];
  const there = [...document.querySelectorAll('.bs-atlas a.head, .heads a')].some(each => each.getAttribute('href') === named());
  lost.hidden = layer === undefined || there || document.querySelector(`.bs-explorer[data-address="${CSS.escape(address)}"] .detail:not([hidden])`) !== null;
  lost.textContent = lost.hidden ? '' : `This page has no head ${address}L${layer}-H${head}.`;
}
addEventListener('hashchange', missed);
missed();
})();
