import * as assert from 'node:assert/strict';
import { test } from 'node:test';

import { choose, maxInFlight, pause, RetryBudget, type Candidate } from '../src/balance';

const server = (serving: boolean | undefined, inFlight = 0, pausedUntil = 0): Candidate => ({ serving, inFlight, pausedUntil });

test('choose prefers healthy servers, untried ones and those with fewer calls', () => {
  const [good, unknown, bad, paused] = [server(true, 9), server(undefined), server(false), server(true, 0, 100)];
  const all = [bad, paused, unknown, good];
  for (const r of [0, 0.3, 0.6, 0.99]) {
    assert.equal(choose(all, new Set(), 50, () => r), good);
    assert.equal(choose(all, new Set([good]), 50, () => r), unknown);
    assert.ok([bad, paused].includes(choose(all, new Set([good, unknown]), 50, () => r)!));
    assert.equal(choose(all, new Set(all), 50, () => r), good, 'all have been tried');
    assert.equal(choose([server(true, 3), server(true, 2)], new Set(), 0, () => r)?.inFlight, 2);
  }
  assert.equal(choose([good, paused], new Set(), 100, () => 0), paused, 'the pause has ended');
});

test('choose uses no server that is full, and waits for the best ones', () => {
  const [full, free] = [server(true, maxInFlight), server(true, maxInFlight - 1)];
  for (const r of [0, 0.3, 0.6, 0.99]) {
    assert.equal(choose([full, free], new Set(), 0, () => r), free);
    assert.equal(choose([full, server(undefined), server(false)], new Set(), 0, () => r), undefined);
    assert.equal(choose([full, free], new Set([free]), 0, () => r), undefined);
  }
});

test('choose uses all servers', () => {
  const servers = Array.from({ length: 5 }, () => server(true));
  const used = new Set<Candidate>();
  for (let i = 0; i < 200; i++) used.add(choose(servers, new Set(), 0, Math.random)!);
  assert.equal(used.size, 5);
});

test('retries are limited', () => {
  const budget = new RetryBudget(0);
  let granted = 0;
  while (budget.take(0)) granted++;
  assert.equal(granted, 64);
  for (let i = 0; i < 11; i++) budget.call();
  assert.ok(budget.take(0) && budget.take(0) && !budget.take(0), 'a fifth of the calls');
  assert.ok(budget.take(100) && !budget.take(100), 'ten a second');
  assert.ok(!budget.take(50), 'the clock went back');
});

test('pauses grow to a limit', () => {
  assert.equal(pause(1, () => 0.5), 100);
  assert.equal(pause(4, () => 0.5), 800);
  assert.ok(pause(100, () => 0.99) <= 6_250);
});
