// What the scripts of the page and of the explorer share.

// From less to more, dark is more, on a light page and on a dark one; and from less over the same
// to more.
const COLOURS = {
  weight: ['#fcfdbf', '#fec287', '#fb8761', '#e55064', '#b5367a', '#812581', '#4f127b',
           '#1c1044', '#000004'],
  change: ['#67001f', '#bb2a34', '#e58368', '#fbceb7', '#f6f7f7', '#c0dceb', '#68abd0',
           '#2870b1', '#053061'],
};
const stops = kind => COLOURS[kind];
// A scale of changes is as far on both sides of 0. It begins with its red end, where less is, or where more
// is worse.
const isChange = ({low, high}) => low === -high && low !== 0;
const gradient = scale => stops(isChange(scale) ? 'change' : 'weight');
const FULL = 'Full colour: a change that these texts would show for any head, or a greater one that is significant.';
const meaning = scale => !isChange(scale) ? 'dark: more' : scale.low > 0 ? 'red: more, blue: less' : 'red: less, blue: more';
const range = count => [...Array(count).keys()];
const most = values => values.reduce((found, value) => Math.max(found, Math.abs(value)), 0);

function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element) element[key] = value; else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

// A text of at most so many letters.
const cut = (text, length) => {
  const letters = [...text];
  return letters.length > length ? letters.slice(0, length - 1).join('') + '…' : text;
};
// A text in Hebrew or Arabic keeps its direction to itself, wherever it stands: in an option or
// a label there are no elements. It begins on the left, as in figures.
const apart = text => /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u
  .test(text) ? `\u2066${text}\u2069` : text;
const inLine = text => apart(cut(text, 60));

function draw(tag, attributes, text = '') {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

// The colour [r, g, b] that '#rrggbb' names.
const channels = colour => [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));

// 256 colours [r, g, b] between the stops.
function shades(kind) {
  const parts = stops(kind).map(channels);
  return range(256).map(index => {
    const place = index / 255 * (parts.length - 1);
    const below = Math.min(Math.floor(place), parts.length - 2);
    return parts[below].map((from, channel) =>
      from + (place - below) * (parts[below + 1][channel] - from));
  });
}

// Black or white, whichever can be read on a colour.
function ink(colour) {
  const [red, green, blue] = colour.map(value => value / 255).map(value =>
    value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? '#000' : '#fff';
}

const shown = value => value === null ? '–'
  : value === 0 ? '0' : Math.abs(value) >= 0.001 && Math.abs(value) < 10000
    ? String(Number(value.toPrecision(4))) : value.toExponential(2);
// As it fits into a cell.
const brief = value => value === null ? '' : value === 0 ? '0' : Math.abs(value) >= 100
  ? String(Math.round(value)) : Math.abs(value) >= 0.001 ? value.toPrecision(2) : value.toExponential(0);

// The ends of the colours for some numbers. The change that is fully red is what texts can show
// (`Effects.red`); of others, which may be below 0, it is the greatest.
function spanOf(values, red = 0) {
  const known = values.filter(value => value !== null);
  const least = Math.min(...known), most = Math.max(...known);
  if (red === 0 && least >= 0) return {low: least, high: most};
  const low = red || -Math.max(-least, most);
  return {low, high: -low};
}

// The colours of numbers from low to high.
function painter(scale) {
  const {low, high} = scale, palette = shades(isChange(scale) ? 'change' : 'weight');
  return value => {
    if (value === null) return null;
    const share = (value - low) / (high - low || 1);
    return palette[Math.round(255 * Math.min(Math.max(share, 0), 1))];
  };
}

// A tiny map of 8 tokens for each kind of head: which tokens [row, column] attend where.
const SHAPES = {
  columns: (row, column) => column === 2 || column === 5, band: (row, column) => Math.abs(row - column) === 1,
  cross: (row, column) => row === column + 1 || column === 5, block: (row, column) => row < 4 === column < 4,
  scattered: (row, column) => (3 * row + 5 * column + row * column) % 4 === 0, first: (row, column) => column === 0,
  ends: (row, column) => column === 4 || column === 7, previous: (row, column) => column === row - 2,
  next: (row, column) => column === row + 2, self: (row, column) => row === column,
  marks: (row, column) => column === 3 || column === 6, even: (row, column) => (row + column) % 2 === 0,
  links: (row, column) => [1, 3, 1, 6, 6, 7, 4, 4][row] === column, rare: (row, column) => column === 5,
};
function sketch(shape) {
  const cells = range(64).filter(at => SHAPES[shape]?.(Math.floor(at / 8), at % 8));
  const drawn = draw('svg', {viewBox: '0 0 8 8', class: 'sketch', 'aria-hidden': 'true'});
  drawn.append(draw('path', {d: cells.map(at => `M${at % 8} ${Math.floor(at / 8)}h1v1h-1z`).join('')}));
  return drawn;
}
