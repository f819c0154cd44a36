// chart.js - one line chart: uPlot where it was installed, else plain SVG lines.
//
// draw({x, lines}) takes columns of one length: a number is a point, null a value that was not finite (a
// gap in the line), undefined "no value at this x" (the line goes on).
import { h, svg } from './dom.js';
import { formatInteger } from './strings.js';

let uPlot = null;

// Load uPlot once; false when it is not there.
export async function loadPlotter() {
  try {
    uPlot = (await import('./vendor/uPlot.esm.js')).default;
    document.head.append(h('link', { rel: 'stylesheet', href: 'vendor/uPlot.min.css' }));
    return true;
  } catch {
    return false;
  }
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// options: {height, log, format (of a y value), sync (a word shared by charts whose cursors move
// together), onHover(index or null)}; lines: [{color (a CSS variable), width, faint, dots, band}].
// A line with `band` and the next one are the lower and upper edge of a filled band.
export function makeChart(host, lines, options) {
  return uPlot ? new PlotChart(host, lines, options) : new SvgChart(host, lines, options);
}

class PlotChart {
  constructor(host, lines, options) {
    this.host = host;
    this.lines = lines;
    this.options = options;
    this.plot = null;
    this.columns = null;
    this.extent = []; // first and last x as drawn; columns may be the caller's, and grow
    this.resizer = new ResizeObserver(() => this.resize());
    this.resizer.observe(host);
    this.theme = matchMedia('(prefers-color-scheme: dark)');
    this.onTheme = () => this.rebuild();
    this.theme.addEventListener('change', this.onTheme);
  }

  setLog(log) {
    this.options.log = log;
    this.rebuild();
  }

  draw({ x, columns }) {
    const [first, last] = this.extent;
    this.columns = [x, ...columns];
    this.extent = [x[0], x[x.length - 1]];
    if (!this.plot) {
      this.rebuild();
      return;
    }
    const { min, max } = this.plot.scales.x;
    const zoomed = min > first || max < last;
    this.plot.setData(this.columns, !zoomed);
    if (zoomed) {
      this.plot.redraw();
    }
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    if (this.columns && this.host.clientWidth > 0) {
      this.plot = new uPlot(this.settings(), this.columns, this.host);
    }
  }

  resize() {
    const width = this.host.clientWidth;
    if (!this.plot) {
      this.rebuild();
    } else if (width > 0 && width !== this.plot.width) {
      this.plot.setSize({ width, height: this.options.height });
    }
  }

  settings() {
    const { height, log, format, sync, onHover } = this.options;
    const axis = {
      stroke: color('--muted'),
      grid: { stroke: color('--line'), width: 1 },
      ticks: { show: false },
      font: '12px system-ui, sans-serif',
    };
    return {
      width: this.host.clientWidth,
      height,
      padding: [8, 12, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        points: { size: 7 },
        drag: { x: true, y: false },
        sync: sync ? { key: sync, scales: ['x', null] } : undefined,
      },
      scales: {
        x: { time: false },
        y: { distr: log ? 3 : 1, range: log ? logRange : linearRange },
      },
      axes: [
        {
          ...axis,
          size: 28,
          values: (plot, splits) =>
            splits.map((v) => (Number.isInteger(v) ? formatInteger(v) : '')),
        },
        {
          ...axis,
          size: 56,
          splits: log ? logTicks : undefined,
          filter: log ? (plot, splits) => splits : undefined,
          values: (plot, splits) => splits.map((v) => (v === null ? '' : format(v))),
        },
      ],
      series: [{}, ...this.lines.map(seriesOf)],
      bands: this.lines.flatMap((line, i) =>
        line.band ? [{ series: [i + 2, i + 1], fill: withAlpha(color(line.color), 0.16) }] : [],
      ),
      hooks: onHover ? { setCursor: [(plot) => onHover(plot.cursor.idx ?? null)] } : {},
    };
  }

  destroy() {
    this.resizer.disconnect();
    this.theme.removeEventListener('change', this.onTheme);
    this.plot?.destroy();
    this.plot = null;
  }
}

function seriesOf(line) {
  const stroke = color(line.color);
  const few = (plot) => plot.data[0].length < 3;
  return {
    stroke: line.faint ? withAlpha(stroke, 0.35) : stroke,
    width: line.width ?? 2,
    points: line.dots
      ? { show: true, size: 7, fill: stroke }
      : { show: few, size: 5, fill: stroke },
  };
}

// '#rrggbb' with an opacity.
function withAlpha(hex, part) {
  return (
    hex +
    Math.round(part * 255)
      .toString(16)
      .padStart(2, '0')
  );
}

function linearRange(plot, low, high) {
  if (low === null || high === null) {
    return [0, 1];
  }
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  const floor = low >= 0 ? Math.max(0, low - room) : low - room;
  return [floor, high + room];
}

function logRange(plot, low, high) {
  return low > 0 && high > 0 ? [low / 1.08, high * 1.08] : [0.1, 10];
}

// About five round numbers from low to high; over more than a decade 1, 2 and 5 of each power of ten.
function logTicks(plot, axis, low, high) {
  const ticks = [];
  if (high / low > 10) {
    for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
      ticks.push(power, power * 2, power * 5);
    }
  } else {
    const rough = (high - low) / 4;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= rough);
    for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) {
      ticks.push(Number(tick.toPrecision(12)));
    }
  }
  return ticks.filter((tick) => tick >= low && tick <= high);
}

const MARGIN = { left: 56, right: 12, top: 8, bottom: 24 };

class SvgChart {
  constructor(host, lines, options) {
    this.host = host;
    this.lines = lines;
    this.options = options;
    this.shown = null;
    this.width = 0;
    this.resizer = new ResizeObserver(() => {
      if (host.clientWidth !== this.width) {
        this.paint();
      }
    });
    this.resizer.observe(host);
  }

  setLog(log) {
    this.options.log = log;
    this.paint();
  }

  draw(columns) {
    this.shown = columns;
    this.paint();
  }

  destroy() {
    this.resizer.disconnect();
  }

  paint() {
    this.width = this.host.clientWidth;
    if (!this.shown || this.width === 0) {
      return;
    }
    const { x, columns } = this.shown;
    const height = this.options.height;
    const log = this.options.log;
    const seen = columns.flat().filter((v) => typeof v === 'number' && (!log || v > 0));
    const [low, high] = (log ? logRange : linearRange)(null, lowest(seen), highest(seen));
    const map = log ? Math.log : (v) => v;
    const span = (v, from, to) => (to > from ? (v - from) / (to - from) : 0.5);
    const inner = {
      width: this.width - MARGIN.left - MARGIN.right,
      height: height - MARGIN.top - MARGIN.bottom,
    };
    const place = {
      x: (v) => MARGIN.left + span(v, x[0], x[x.length - 1]) * inner.width,
      y: (v) => MARGIN.top + (1 - span(map(v), map(low), map(high))) * inner.height,
      fits: (v) => typeof v === 'number' && (!log || v > 0),
    };
    const drawing = svg('svg', {
      width: this.width,
      height,
      'aria-hidden': 'true',
      class: 'plain-chart',
    });
    for (const part of [0, 0.5, 1]) {
      const value = log ? low * (high / low) ** part : low + (high - low) * part;
      const y = place.y(value);
      drawing.append(
        svg('line', {
          x1: MARGIN.left,
          x2: this.width - MARGIN.right,
          y1: y,
          y2: y,
          class: 'grid',
        }),
        svg(
          'text',
          { x: MARGIN.left - 6, y: y + 4, 'text-anchor': 'end' },
          this.options.format(Number(value.toPrecision(2))),
        ),
      );
    }
    if (x.length > 0) {
      drawing.append(
        svg('text', { x: MARGIN.left, y: height - 6 }, formatInteger(x[0])),
        svg(
          'text',
          { x: this.width - MARGIN.right, y: height - 6, 'text-anchor': 'end' },
          formatInteger(x[x.length - 1]),
        ),
      );
    }
    this.lines.forEach((line, i) => {
      if (line.width > 0 || line.dots) {
        drawing.append(...paintLine(line, x, columns[i], place));
      }
    });
    this.host.replaceChildren(drawing);
  }
}

function paintLine(line, x, values, place) {
  const tint = line.color.slice(2);
  const points = x.flatMap((step, i) =>
    place.fits(values[i]) ? [[place.x(step), place.y(values[i])]] : [],
  );
  if (line.dots || points.length === 1) {
    return points.map(([cx, cy]) => svg('circle', { cx, cy, r: 3.5, class: `dot ${tint}` }));
  }
  let path = '';
  let pen = 'M';
  x.forEach((step, i) => {
    if (place.fits(values[i])) {
      path += `${pen}${place.x(step).toFixed(1)} ${place.y(values[i]).toFixed(1)}`;
      pen = 'L';
    } else if (values[i] === null) {
      pen = 'M';
    }
  });
  return path
    ? [svg('path', { d: path, class: `curve ${tint}${line.faint ? ' faint' : ''}` })]
    : [];
}

const lowest = (values) => values.reduce((a, b) => (a === null || b < a ? b : a), null);
const highest = (values) => values.reduce((a, b) => (a === null || b > a ? b : a), null);
