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

const everyGrid = [...document.querySelectorAll('.bs-grids')].map(root => ({
  root, address: root.dataset.address, layers: Number(root.dataset.layers),
  heads: Number(root.dataset.heads), frames: JSON.parse(root.querySelector('script').textContent),
}));

function nameAt(grid, at) {
  return `L${Math.floor(at / grid.heads) + 1}-H${at % grid.heads + 1}`;
}

// A number with all that its frame has to say of how sure it is: interval, error, p-values, sample.
function told(frame, set, column, at, times) {
  const {columns, beside} = frame, {values} = frame.sets[set];
  const numberOf = place => values[place][at];
  const scaled = place => /\b(?:low|high|error|deviation)\b/.test(columns[place])
    ? shown(numberOf(place) === null ? null : times * numberOf(place)) : shown(numberOf(place));
  const ends = ['low', 'high'].map(end => beside[column].find(place =>
    RegExp(`\\b${end}\\b`).test(columns[place])));
  const interval = ends.every(place => place !== undefined && numberOf(place) !== null)
    ? [`interval ${ends.map(scaled).join(' to ')}`] : [];
  return [...interval, ...beside[column].filter(place => !ends.includes(place) && numberOf(place) !== null)
    .map(place => `${columns[place]} ${scaled(place)}`)];
}

function key({low, high, signed, label}) {
  return make('p', {className: 'key'}, shown(low),
    make('i', {style: `background: linear-gradient(90deg, ${stops(signed ? 'change' : 'weight')})`}),
    shown(high), ` ${label}`);
}

// A grid of all heads: one stop of the tab key, arrows move in it. `sorted` puts the heads of each
// layer in the order of their numbers.
function heat({layers, heads, address}, values, {title, paint, tell, circles = [], sorted = false}) {
  const order = range(layers).flatMap(layer => {
    const mine = range(heads).map(head => layer * heads + head);
    const size = at => values[at] ?? -Infinity;
    return sorted ? mine.sort((one, other) => size(other) - size(one) || one - other) : mine;
  });
  const cells = order.map((at, place) => {
    const colour = paint(values[at]);
    const cell = make('a', {
      href: `#${address}${nameAt({heads}, at)}`, tabIndex: place ? -1 : 0,
      className: ['', 'open', 'filled'][circles[at] ?? 0],
      'aria-label': `${nameAt({heads}, at)}, ${title} ${plain(values[at])}`,
      onpointerenter: () => tell(at),
      onfocus: () => {
        cells.forEach(each => { each.tabIndex = each === cell ? 0 : -1; });
        tell(at);
      },
      onkeydown: event => {
        const to = {
          ArrowLeft: place - (place % heads > 0), ArrowRight: place + (place % heads < heads - 1),
          ArrowUp: place - heads, ArrowDown: place + heads,
        }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        cells[to]?.focus();
      },
    }, sorted ? `H${at % heads + 1}` : brief(values[at]));
    if (colour) Object.assign(cell.style, {background: `rgb(${colour})`, color: ink(colour)});
    return cell;
  });
  return make('table', {className: sorted ? 'heads sorted' : 'heads', 'aria-label': `${title}, every head`},
    make('tbody', {},
      make('tr', {}, make('td', {}), ...range(heads).map(head =>
        make('th', {scope: 'col'}, sorted ? `${head + 1}.` : `H${head + 1}`))),
      ...range(layers).map(layer => make('tr', {}, make('th', {scope: 'row'}, `L${layer + 1}`),
        ...cells.slice(layer * heads, (layer + 1) * heads).map(cell => make('td', {}, cell))))));
}

const listOf = ({layers, heads, address}, caption, columns, numbersOf) =>
  tableOf(caption, ['head', ...columns], range(layers * heads).map(at => [
    make('a', {href: `#${address}${nameAt({heads}, at)}`}, nameAt({heads}, at)), ...numbersOf(at)]));

const WAYS = ['as a grid', 'as a grid, the heads of each layer sorted', 'as a list'];
const wayOf = () => make('select', {'aria-label': 'Shown'}, ...WAYS.map(way => make('option', {}, way)));

// All numbers of a result: a set of them is chosen, and one of its columns colours the heads.
function build(grid) {
  const {frames, layers, heads} = grid;
  const sets = frames.flatMap(frame => frame.sets.map((set, number) => ({frame, set, number})));
  const choice = make('select', {'aria-label': 'Numbers of'}, ...frames.map(frame =>
    make('optgroup', {label: frame.name}, ...frame.sets.map(set =>
      make('option', {}, set.of || frame.name)))));
  const column = make('select', {'aria-label': 'Coloured by'}), way = wayOf();
  const readout = make('output', {'aria-live': 'polite'}), place = make('div', {});
  const chosen = () => sets[choice.selectedIndex];

  function columns() {
    const {frame, set} = chosen(), before = column.value;
    column.replaceChildren(...frame.columns.map(name => make('option', {}, name)));
    // The first that differs between heads: the number of examples, for one, does not.
    const varied = set.values.findIndex(values => new Set(values).size > 1);
    column.selectedIndex = frame.columns.includes(before) ? frame.columns.indexOf(before) : Math.max(varied, 0);
  }

  function tell(at) {
    const {frame, set, number} = chosen(), mine = column.selectedIndex, beside = frame.beside[mine];
    const others = range(frame.columns.length).filter(index => index !== mine && !beside.includes(index))
      .map(index => `${frame.columns[index]} ${plain(set.values[index][at])}`);
    const numbers = [`${frame.columns[mine]} ${plain(set.values[mine][at])}`,
      ...told(frame, number, mine, at, 1), ...others];
    readout.textContent = `${nameAt(grid, at)}${set.of && `, ${set.of}`}: ${numbers.join(', ')}.`;
  }

  function draw() {
    const {frame, set} = chosen(), values = set.values[column.selectedIndex];
    readout.textContent = 'Point at a head for its numbers.';
    if (way.selectedIndex === 2) {
      place.replaceChildren(listOf(grid, frame.caption, frame.columns, at =>
        set.values.map(each => shown(each[at]))));
      return;
    }
    const scale = {...spanOf(values), label: column.value};
    place.replaceChildren(
      heat(grid, values, {
        title: column.value, paint: painter(scale), tell, sorted: way.selectedIndex === 1,
      }),
      key(scale), make('p', {className: 'note'}, frame.caption));
  }

  choice.onchange = () => { columns(); draw(); };
  column.onchange = way.onchange = draw;
  dark.addEventListener('change', draw);
  columns();
  draw();
  grid.root.append(make('div', {className: 'controls'}, make('label', {}, 'Numbers of ', choice),
    make('label', {}, 'coloured by ', column), make('label', {}, 'shown ', way)), place, readout);
}

// The grids of a figure, on one scale, in place of its image, which stays one click away.
function redraw(figure) {
  const {panels, label, low, high, centred} = JSON.parse(figure.querySelector('script').textContent);
  const frames = everyGrid.find(({root}) => figure.closest('section').contains(root))?.frames;
  const [layers, heads] = panels[0].shape, place = make('div', {className: 'panels'});
  const all = {layers, heads, address: figure.dataset.address};
  const scale = {low, high, signed: centred, label}, way = wayOf();
  const readout = make('output', {'aria-live': 'polite'});

  function beside({rows, times}, at) {
    if (!rows.length) return [];
    const [[place, first, column]] = rows, frame = frames[place];
    if (rows.length === 1) return told(frame, first, column, at, times);
    const each = rows.map(([, set]) => frame.sets[set].values[column][at]).filter(value => value !== null);
    return each.length ? [`mean of ${rows.length} fine-tunings, ${shown(times * Math.min(...each))} to ${
      shown(times * Math.max(...each))}`] : [];
  }

  const tell = panel => at => {
    const said = [shown(panel.values[at]), ...beside(panel, at),
      ...[[], ['open circle'], ['filled circle']][panel.circles[at] ?? 0]];
    readout.textContent = `${nameAt(all, at)}, ${panel.title}: ${said.join(', ')}.`;
  };

  function draw() {
    readout.textContent = 'Point at a head for its numbers.';
    place.classList.toggle('one', panels.length === 1);
    place.replaceChildren(...way.selectedIndex === 2
      ? [listOf(all, label, panels.flatMap(({title}) => [title, '']), at => panels.flatMap(panel =>
        [shown(panel.values[at]), beside(panel, at).join(', ')]))]
      : panels.map(panel => make('div', {},
        ...panels.length > 1 ? [make('p', {className: 'title'}, panel.title)] : [],
        heat(all, panel.values, {
          title: panel.title, paint: painter(scale), tell: tell(panel), circles: panel.circles,
          sorted: way.selectedIndex === 1,
        }))));
  }

  way.onchange = draw;
  dark.addEventListener('change', draw);
  draw();
  figure.prepend(place, readout,
    make('div', {className: 'controls'}, key(scale), make('label', {}, 'Shown ', way)));
  figure.querySelector('.image').open = false;
}
document.querySelectorAll('.bs-figure').forEach(redraw);

for (const grid of everyGrid) {
  grid.root.addEventListener('toggle', () => { if (!grid.root.querySelector('output')) build(grid); });
}

// All numbers of one head, below its maps or, without maps, below the atlas.
function card(address, name) {
  document.querySelectorAll(`.card[data-address="${address}"]`).forEach(each => each.remove());
  const mine = everyGrid.filter(grid => grid.address === address);
  const [, layer, head] = name?.match(/^L(\d+)-H(\d+)$/) ?? [];
  if (!mine.length || !(layer >= 1 && layer <= mine[0].layers && head >= 1 && head <= mine[0].heads)) return;
  const at = (layer - 1) * mine[0].heads + Number(head) - 1;
  const tables = mine.flatMap(({frames}) => frames.map(({caption, columns, sets}) =>
    tableOf(caption, ['', ...columns], sets.map(set =>
      [set.of, ...set.values.map(values => shown(values[at]))]))));
  const whole = make('section', {className: 'card', 'aria-label': `All numbers of ${name}`},
    make('h3', {}, `All numbers of ${name}`), ...tables);
  whole.dataset.address = address;
  const explorer = document.querySelector(`.bs-explorer[data-address="${address}"] .detail`);
  if (explorer) explorer.append(whole);
  else document.getElementById(`${address}heads`)?.parentElement.append(whole);
}
addEventListener('bs-head', ({detail}) => card(detail.address, detail.head));

// All of them can colour and sort the heads of the explorer.
for (const explorer of document.querySelectorAll('.bs-explorer')) {
  const mine = everyGrid.filter(grid => grid.address === explorer.dataset.address);
  const numbers = mine.flatMap(({frames}) => frames.flatMap(({name, columns, about, sets}) =>
    sets.flatMap(({of, values}) => about.map(column => ({
      group: name, values: values[column],
      title: [of, columns[column] === 'mean' && of ? '' : columns[column]].filter(Boolean).join(', '),
    })))));
  explorer.dispatchEvent(new CustomEvent('bs-numbers', {detail: numbers}));
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

// Sections, heads and sentences by what is typed.
const found = [
  ...[...document.querySelectorAll('h2')].map(each => ({
    text: each.textContent, to: `#${each.id || each.parentElement.id}`,
  })),
  ...[...document.querySelectorAll('.bs-atlas a.head')].map(each => ({
    text: each.getAttribute('aria-label'), to: each.getAttribute('href'), head: each,
  })),
  ...[...document.querySelectorAll('section[id] > p, .more > p:not(.note, .file, .caption), figcaption > bdi')]
    .map(each => ({
      text: each.textContent.trim(), to: `#${each.closest('section').id}`, within: each.closest('.more'),
    })),
];
const asked = make('input', {
  type: 'search', placeholder: 'Search: L6-H5, previous token, frames ...', 'aria-label': 'Search this page',
});
const answers = make('ul', {hidden: true, 'aria-label': 'Found'});
asked.oninput = () => {
  const words = asked.value.toLowerCase().split(/\s+/).filter(Boolean);
  // "L6-H1" is not meant by L6-H10 as long as there is an L6-H1.
  const rank = ({text}) => text.toLowerCase().split(/[\s,]+/).includes(words[0]) ? 0 : 1;
  const hits = words.length ? found.filter(({text}) =>
    words.every(word => text.toLowerCase().includes(word))) : [];
  hits.sort((a, b) => rank(a) - rank(b));
  answers.hidden = !words.length;
  answers.replaceChildren(...hits.slice(0, 12).map(({text, to, within}) =>
    make('li', {}, make('a', {
      href: to,
      onclick: () => {
        answers.hidden = true;
        if (within) within.open = true;
      },
    },
      text.length > 160 ? `${text.slice(0, 159)}…` : text))));
  if (words.length && !hits.length) answers.append(make('li', {}, 'Nothing on this page.'));
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
})();
