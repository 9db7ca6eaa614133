// What the scripts of the page and of the explorer share.

// From no attention to all of it; and from less over the same to more.
const COLOURS = {
  light: {
    weight: ['#fcfdbf', '#fec287', '#fb8761', '#e55064', '#b5367a', '#812581', '#4f127b',
             '#1c1044', '#000004'],
    change: ['#67001f', '#bb2a34', '#e58368', '#fbceb7', '#f6f7f7', '#c0dceb', '#68abd0',
             '#2870b1', '#053061'],
  },
  dark: {
    weight: ['#000004', '#1c1044', '#4f127b', '#812581', '#b5367a', '#e55064', '#fb8761',
             '#fec287', '#fcfdbf'],
    change: ['#ffd0c2', '#ff8a70', '#d9432f', '#86281f', '#141414', '#22528c', '#2f7fd0',
             '#78b4ff', '#cfe4ff'],
  },
};
// Paper is light, whatever the screen is.
const dark = matchMedia('screen and (prefers-color-scheme: dark)');
const stops = kind => COLOURS[dark.matches ? 'dark' : 'light'][kind];
const range = count => [...Array(count).keys()];

function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element) element[key] = value; else element.setAttribute(key, value);
  }
  element.append(...children);
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

// The ends of the colours for some numbers: those of a change if they lie on both sides of 0.
function spanOf(values) {
  const known = values.filter(value => value !== null);
  const least = Math.min(...known), most = Math.max(...known), signed = least < 0 && most > 0;
  const high = signed ? Math.max(-least, most) : most;
  return {low: signed ? -high : least, high, signed};
}

// The colours of numbers from low to high, or of changes up to high either way.
function painter({low, high, signed}) {
  const palette = shades(signed ? 'change' : 'weight');
  return value => {
    if (value === null) return null;
    const share = signed ? (value / (high || 1) + 1) / 2 : (value - low) / (high - low || 1);
    return palette[Math.round(255 * Math.min(Math.max(share, 0), 1))];
  };
}
