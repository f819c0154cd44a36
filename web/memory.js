// memory.js - memory by region as one stacked bar with its legend.
import { h } from './dom.js';
import { formatBytes, has, t } from './strings.js';

const TINTS = 8;

const regionWord = (region) => (has(`region.${region}`) ? t(`region.${region}`) : region);

// show({region: bytes} or null, limit?): the bar is as wide as the sum, or as `limit` bytes when larger.
export function memoryBar() {
  const bar = h('div', { class: 'stacked-bar', 'aria-hidden': 'true' });
  const legend = h('ul', { class: 'legend' });
  const node = h(
    'div',
    { class: 'memory', hidden: true },
    h('h3', { t: 'memory.title' }),
    bar,
    legend,
  );
  return {
    node,
    show(memory, limit = 0) {
      const regions = Object.entries(memory ?? {})
        .filter(([, bytes]) => bytes > 0)
        .sort(([, a], [, b]) => b - a);
      const sum = regions.reduce((total, [, bytes]) => total + bytes, 0);
      node.hidden = sum === 0;
      const part = (bytes, tint) => {
        const piece = h('span', { class: `tint-${tint}` });
        piece.style.flexGrow = String(bytes / sum);
        return piece;
      };
      bar.replaceChildren(...regions.map(([, bytes], i) => part(bytes, i % TINTS)));
      if (limit > sum) {
        bar.append(part(limit - sum, 'free'));
      }
      legend.replaceChildren(
        ...regions.map(([region, bytes], i) =>
          h(
            'li',
            {},
            h('span', { class: `key tint-${i % TINTS}`, 'aria-hidden': 'true' }),
            regionWord(region),
            ' ',
            h('strong', {}, formatBytes(bytes)),
          ),
        ),
      );
    },
  };
}
