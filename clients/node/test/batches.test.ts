import * as assert from 'node:assert/strict';
import { test } from 'node:test';

import { batches, maxRequestBytes } from '../src/batches';

test('batches split by ids and by bytes, and keep the order', () => {
  const short = Buffer.alloc(1);
  const long = Buffer.alloc(1024);
  const perRequest = Math.floor(maxRequestBytes / (long.length + 3));
  for (const [ids, batchIDs, want] of [
    [[], 5, []],
    [Array(5).fill(short), 5, [5]],
    [Array(11).fill(short), 5, [5, 5, 1]],
    [Array(perRequest).fill(long), 16_384, [perRequest]],
    [Array(2 * perRequest + 1).fill(long), 16_384, [perRequest, perRequest, 1]],
  ] as [Buffer[], number, number[]][]) {
    const got = [...batches(ids, batchIDs)];
    assert.deepEqual(got.flat(), [...ids.keys()]);
    assert.deepEqual(got.map((batch) => batch.length), want);
  }
  assert.deepEqual([...batches([short, Buffer.alloc(0), short, Buffer.alloc(0)], 1)], [[0], [2]]);
});
