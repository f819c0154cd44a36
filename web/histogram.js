// histogram.js - how many examples are how long, as small bars with a table of the same numbers for those who do not
// see them.
import { h, svg } from './dom.js';
import { formatInteger, t } from './strings.js';

const WIDTH = 32;
const HEIGHT = 64;
const GAP = 4;

// counts[i] examples have edges[i] <= length < edges[i + 1].
export function histogram({ edges, counts }, title) {
  const most = Math.max(...counts, 1);
  const range = (i) =>
    t('report.between', {
      low: formatInteger(edges[i]),
      high: formatInteger(edges[i + 1] - 1),
    });
  const bars = counts.map((count, i) => {
    const height = count > 0 ? Math.max(2, (count / most) * HEIGHT) : 0;
    const bar = svg('rect', {
      x: i * WIDTH + GAP / 2,
      y: HEIGHT - height,
      width: WIDTH - GAP,
      height,
      rx: 3,
    });
    bar.append(svg('title', {}, `${range(i)}: ${formatInteger(count)}`));
    return bar;
  });
  const labels = edges.slice(0, -1).map((edge, i) => {
    return svg('text', { x: i * WIDTH + WIDTH / 2, y: HEIGHT + 14 }, edge < 1000 ? edge : `${Math.round(edge / 1000)}K`);
  });
  return h(
    'figure',
    { class: 'histogram' },
    h('figcaption', { t: title }),
    svg(
      'svg',
      {
        viewBox: `0 0 ${counts.length * WIDTH} ${HEIGHT + 18}`,
        width: counts.length * WIDTH,
        height: HEIGHT + 18,
        'aria-hidden': 'true',
      },
      bars,
      labels,
    ),
    h(
      'table',
      { class: 'visually-hidden' },
      h(
        'tbody',
        {},
        counts.map((count, i) =>
          h('tr', {}, h('th', { scope: 'row' }, range(i)), h('td', {}, formatInteger(count))),
        ),
      ),
    ),
  );
}
