import * as assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import * as fs from 'node:fs';
import * as path from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

import * as grpc from '@grpc/grpc-js';

import { maxInFlight } from '../src/balance';
import { serviceOfDocuments, serviceOfHealth } from '../src/proto';
import { Client, DocstoreError, type ClientOptions } from '../src';
import { Commands, type Daemon } from './daemon';

const documents = 3_000;
const document = (i: number) => `{"id":"job-${String(i).padStart(5, '0')}","n":${i}}`;
const damagedDocument = Buffer.from('bytes \0 of a document');
const id = (i: number) => `job-${String(i).padStart(5, '0')}`;

let commands: Commands;
let queue: string;
let first: Daemon;

/** using calls fn with a client, and closes it. */
async function using(options: Partial<ClientOptions>, fn: (client: Client) => Promise<void>): Promise<void> {
  const client = new Client({ servers: [], collection: 'jobs', ...options });
  try {
    await fn(client);
  } finally {
    client.close();
  }
}

const failsWith = (code: string, message = /./) => (error: unknown) =>
  error instanceof DocstoreError && error.code === code && message.test(error.message);

/** listen starts a server of a test and returns its address. */
function listen(server: grpc.Server): Promise<string> {
  return new Promise((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, port) => (error ? reject(error) : resolve(`127.0.0.1:${port}`)));
  });
}

before(async () => {
  commands = new Commands();
  const lines = Array.from({ length: documents }, (_, i) => document(i));
  lines.push(`{"_id_base64":"/w==","_document_base64":"${damagedDocument.toString('base64')}"}`, '{"id":"ü","x":1}', '{"id":"gone"}', '{"id":"gone","_delete":true}');
  queue = commands.append('queue', lines.join('\n') + '\n');
  first = await commands.serve(queue, 'one');
});

after(async () => {
  await commands.end();
});

test('the proto file is that of the server', () => {
  const root = path.join(__dirname, '../..');
  const read = (file: string) => fs.readFileSync(path.join(root, file), 'utf8');
  assert.equal(read('proto/docservice.proto'), read('../../docservice/docservicepb/docservice.proto'), 'run npm run generate');
});

test('documents, batches, scans and statistics of a daemon', { timeout: 60_000 }, async () => {
  const daemon = first;
  await using({ servers: [daemon.address] }, async (client) => {
    await client.waitReady();
    assert.deepEqual(client.health(), { [daemon.address]: true });
    assert.equal((await client.get(id(7)))?.toString(), document(7));
    assert.equal((await client.get('ü'))?.toString(), '{"id":"ü","x":1}');
    assert.deepEqual(await client.get(Buffer.from([0xff])), damagedDocument);
    assert.equal(await client.get('gone'), null);
    assert.equal(await client.get('missing'), null);
    assert.equal((await client.stats()).name, 'jobs');

    const ids = Array.from({ length: 2 * documents }, (_, i) => id((i * 7) % (2 * documents)));
    const answers = await client.getMany(ids);
    answers.forEach((answer, i) => {
      const n = (i * 7) % (2 * documents);
      assert.equal(answer.id, ids[i]);
      assert.equal(answer.error, undefined);
      assert.equal(answer.document?.toString() ?? null, n < documents ? document(n) : null);
    });
    assert.deepEqual(await client.getMany([]), []);

    let n = 10;
    for await (const entry of client.scan({ prefix: 'job-', after: id(9), pageIDs: 400 })) {
      assert.equal(entry.id.toString(), id(n));
      assert.equal(entry.document?.toString(), document(n));
      n++;
    }
    assert.equal(n, documents);
    for await (const entry of client.scan({ prefix: 'ü', idsOnly: true })) assert.equal(entry.document, null);
  });
});

test('wrong use is refused', { timeout: 60_000 }, async () => {
  const daemon = first;
  for (const [options, message] of [
    [{ servers: [] }, /servers is empty/],
    [{ servers: ['a:1', 'a:1'] }, /twice/],
    [{ servers: ['a:1'], collection: '' }, /collection is missing/],
    [{ servers: ['a:1'], batchIDs: 0 }, /batchIDs is 0: want a number from 1 to 16384/],
    [{ servers: ['a:1'], batchIDs: 16_385 }, /batchIDs/],
    [{ servers: ['a:1'], timeoutMs: NaN }, /timeoutMs/],
    [{ servers: ['a:1'], attemptMs: 0 }, /attemptMs/],
    [{ servers: ['a:1'], maxRetries: -1 }, /maxRetries/],
    [{ servers: ['a:1'], concurrency: 0 }, /concurrency/],
    [{ servers: ['a:1'], timeoutMs: '5' }, /timeoutMs is 5/],
    [{ servers: ['a:1'], batchIDs: 1.5 }, /batchIDs is 1.5: want an integer/],
    [{ servers: undefined }, /servers is missing/],
    [{ servers: 'a:1' }, /servers is missing/],
    [{ servers: [''] }, /empty or not a string/],
    [{ servers: [1] }, /empty or not a string/],
    [{ servers: ['a:1'], collection: 5 }, /collection is missing/],
    [{ servers: ['a:1'], ca: 'text' }, /^ca or certificate: .*Buffer/],
    [{ servers: ['a:1'], ca: Buffer.from('x'), certificate: { key: Buffer.from('k') } }, /certificate/],
    [{ servers: ['a:1'], ca: Buffer.from('x'), token: 'a\nb' }, /token/],
    [{ servers: ['a:1'], token: 'secret' }, /not sent in plain text/],
  ] as [object, RegExp][]) {
    assert.throws(() => new Client({ servers: [], collection: 'jobs', ...options }), failsWith('invalid_argument', message));
  }
  assert.throws(() => new Client(undefined!), failsWith('invalid_argument', /collection is missing/));
  await using({ servers: [daemon.address] }, async (client) => {
    await assert.rejects(client.get(''), failsWith('invalid_argument', /0 bytes/));
    await assert.rejects(client.get('x'.repeat(1025)), failsWith('invalid_argument', /1025 bytes/));
    await assert.rejects(client.get('a\ud800'), failsWith('invalid_argument', /surrogate/));
    for (const id of ['', 'x'.repeat(1025), 'a\ud800', Buffer.alloc(0)]) {
      const [wrong, found] = await client.getMany([id, 'ü']);
      assert.equal(wrong!.id, id);
      assert.ok(failsWith('invalid_argument', /^ids\[0\] has /)(wrong!.error));
      assert.equal(found!.document?.toString(), '{"id":"ü","x":1}');
    }
    // Values that only JavaScript permits.
    for (const id of [undefined, null, 5, {}, ['a']]) {
      await assert.rejects(client.get(id as never), failsWith('invalid_argument', /want a string or a Uint8Array/));
      await assert.rejects(client.getMany(['a', id as never]), failsWith('invalid_argument', /ids\[1\] is/));
    }
    for (const ids of [undefined, null, 'abc', new Set(['a'])]) await assert.rejects(client.getMany(ids as never), failsWith('invalid_argument', /not an array/));
    await assert.rejects(client.getMany(new Array(1)), failsWith('invalid_argument', /ids\[0\] is undefined/));
    assert.equal((await client.get(id(1), null!))?.toString(), document(1));
    const scan = async (options: object) => { for await (const _ of client.scan(options)); };
    for (const wrong of [{ prefix: 5 }, { after: {} }, { prefix: '\ud800' }, { after: 'x'.repeat(1025) }, { pageIDs: NaN }, { pageIDs: -1 }, { pageIDs: 4_097 }, { pageIDs: 1.5 }]) {
      await assert.rejects(scan(wrong), failsWith('invalid_argument', new RegExp(Object.keys(wrong)[0]!)));
    }
    await assert.rejects(client.get('a', { signal: AbortSignal.abort() }), failsWith('aborted'));
    await assert.rejects(client.get('a', { timeoutMs: 0 }), failsWith('deadline_exceeded'));
    client.close();
    await assert.rejects(client.get('a'), failsWith('aborted', /closed/));
  });
  await using({ servers: [daemon.address], collection: 'other' }, async (client) => {
    await assert.rejects(client.get('a'), failsWith('no_collection', /only jobs/));
    await assert.rejects(client.getMany(['a']), failsWith('no_collection'));
  });
  await using({ servers: ['127.0.0.1:1'], maxRetries: 1 }, async (client) => {
    await assert.rejects(client.get('a'), failsWith('no_server'));
    await assert.rejects(client.getMany(['a']), failsWith('no_server'));
    await assert.rejects(client.waitReady({ timeoutMs: 50 }), failsWith('deadline_exceeded'));
  });
});

test('a timeout or signal of a wrong kind is refused and the process survives', { timeout: 60_000 }, async () => {
  await using({ servers: [first.address] }, async (client) => {
    await client.waitReady();
    for (const options of [{ timeoutMs: NaN }, { timeoutMs: -1 }, { timeoutMs: Infinity }, { timeoutMs: 2 ** 31 }, { timeoutMs: '5' }, { timeoutMs: null }, { signal: {} }, { signal: null }]) {
      const refused = failsWith('invalid_argument', new RegExp(Object.keys(options)[0]!));
      await assert.rejects(client.get(id(1), options as never), refused);
      await assert.rejects(client.getMany([id(1)], options as never), refused);
      await assert.rejects(client.stats(options as never), refused);
      await assert.rejects(client.waitReady(options as never), refused);
      await assert.rejects(client.scan(options as never).next(), refused);
    }
    assert.equal((await client.get(id(1)))?.toString(), document(1));
  });
});

test('calls that share an AbortSignal share one listener', { timeout: 60_000 }, async () => {
  const warnings: Error[] = [];
  const warned = (warning: Error) => warnings.push(warning);
  process.on('warning', warned);
  await using({ servers: [first.address, '127.0.0.1:1'] }, async (client) => {
    const { signal } = new AbortController();
    await Promise.all(Array.from({ length: 50 }, (_, i) => client.get(id(i), { signal })));
    assert.equal(getEventListeners(signal, 'abort').length, 0);

    const stop = new AbortController();
    const calls = Array.from({ length: 50 }, (_, i) => client.get(id(i), { signal: stop.signal }));
    const refused = calls.map((call) => assert.rejects(call, failsWith('aborted')));
    assert.ok(getEventListeners(stop.signal, 'abort').length <= 1);
    stop.abort();
    await Promise.all(refused);
  });
  await new Promise(setImmediate); // warnings are emitted in a later tick
  process.off('warning', warned);
  assert.deepEqual(warnings, []);
});

test('calls wait in the client until a server has less than maxInFlight, and all are answered', { timeout: 60_000 }, async () => {
  // The server holds calls for a while: those that a client without a limit sends arrive.
  const held: (() => void)[] = [];
  let most = 0;
  const server = new grpc.Server();
  server.addService(serviceOfDocuments, {
    Get: (call: { request: { id: Buffer } }, done: grpc.sendUnaryData<object>) => {
      held.push(() => done(null, { status: 'STATUS_FOUND', document: call.request.id }));
      most = Math.max(most, held.length);
      if (held.length === 1) setTimeout(() => held.splice(0).forEach((answer) => answer()), 50);
    },
  });
  await using({ servers: [await listen(server)], timeoutMs: 30_000, attemptMs: 30_000 }, async (client) => {
    const calls = Array.from({ length: 20 * maxInFlight }, (_, i) => client.get(id(i)));
    const stop = new AbortController();
    const aborted = client.get('aborted', { signal: stop.signal });
    const late = client.get('late', { timeoutMs: 1 });
    stop.abort();
    await assert.rejects(aborted, failsWith('aborted'));
    await assert.rejects(late, failsWith('deadline_exceeded'));
    (await Promise.all(calls)).forEach((answer, i) => assert.equal(answer?.toString(), id(i)));
    assert.ok(most <= maxInFlight, `${most} calls in flight`);

    const closed = Array.from({ length: 2 * maxInFlight - 1 }, () => assert.rejects(client.get('a'), failsWith('aborted')));
    client.close();
    await Promise.all(closed);
  });
  server.forceShutdown();
});

test('a health stream that ended is opened again, also after OK', { timeout: 60_000 }, async () => {
  let watched = 0;
  const server = new grpc.Server();
  server.addService(serviceOfHealth, {
    Watch: (call: grpc.ServerWritableStream<object, object>) => {
      call.write({ status: ++watched === 3 ? 'SERVING' : 'NOT_SERVING' });
      if (watched === 1) call.end();
      if (watched === 2) call.emit('error', { code: grpc.status.UNAVAILABLE, details: 'stopping' });
    },
  });
  await using({ servers: [await listen(server)] }, async (client) => {
    await client.waitReady();
    assert.equal(watched, 3);
  });
  server.forceShutdown();
});

test('a refused permission is not a missing authentication', { timeout: 60_000 }, async () => {
  const server = new grpc.Server();
  const refuse = (code: grpc.status) => (_: unknown, done: grpc.sendUnaryData<object>) => done({ code, details: 'no' });
  server.addService(serviceOfDocuments, { Get: refuse(grpc.status.PERMISSION_DENIED), Stats: refuse(grpc.status.UNAUTHENTICATED) });
  await using({ servers: [await listen(server)] }, async (client) => {
    await assert.rejects(client.get('a'), failsWith('permission_denied', /no$/));
    await assert.rejects(client.stats(), failsWith('unauthenticated', /no$/));
  });
  server.forceShutdown();
});

test('the priority of a call is sent to the server', { timeout: 60_000 }, async () => {
  const seen: grpc.MetadataValue[][] = [];
  const server = new grpc.Server();
  server.addService(serviceOfDocuments, {
    Get: (call: { metadata: grpc.Metadata }, done: grpc.sendUnaryData<object>) => {
      seen.push(call.metadata.get('priority'));
      done(null, { status: 'STATUS_NOT_FOUND' });
    },
  });
  await using({ servers: [await listen(server)] }, async (client) => {
    await client.get('a');
    await client.get('a', { priority: 'interactive' });
    await client.get('a', { priority: 'batch' });
    await assert.rejects(client.get('a', { priority: 'low' as 'batch' }), failsWith('invalid_argument', /priority is low/));
  });
  assert.deepEqual(seen, [[], [], ['u=7']]);
  server.forceShutdown();
});

test('ids of more than 4 MiB are split, and the server stays in use', { timeout: 60_000 }, async () => {
  await using({ servers: [first.address], batchIDs: 16_384, maxRetries: 0, attemptMs: 20_000, timeoutMs: 30_000 }, async (client) => {
    const ids = Array.from({ length: 9_000 }, (_, i) => (i % 1_000 === 0 ? id(i / 1_000) : String(i).padStart(1024, 'x')));
    const answers = await client.getMany(ids);
    answers.forEach((answer, i) => {
      assert.equal(answer.error, undefined);
      assert.equal(answer.document?.toString() ?? null, i % 1_000 === 0 ? document(i / 1_000) : null);
    });
  });
});

test('a response that is too large is split', { timeout: 60_000 }, async () => {
  const line = (i: number) => JSON.stringify({ id: `large-${i}`, x: 'x'.repeat(9 << 20) });
  const daemon = await commands.serve(commands.append('large', [0, 1, 2, 3, 4].map(line).join('\n') + '\n'), 'large-data', ['--memory', '512MiB']);
  await using({ servers: [daemon.address], attemptMs: 20_000, timeoutMs: 60_000 }, async (client) => {
    const answers = await client.getMany([0, 1, 2, 3, 4].map((i) => `large-${i}`));
    answers.forEach((answer, i) => assert.equal(answer.document?.length, line(i).length));
  });
  await daemon.stop();
});

test('a document that one server cannot read comes from another one', { timeout: 60_000 }, async () => {
  const copy = path.join(commands.dir, 'copy');
  fs.cpSync(queue, copy, { recursive: true });
  const segment = fs.readdirSync(copy).find((name) => name.endsWith('.seg'))!;
  const bytes = fs.readFileSync(path.join(copy, segment));
  const at = bytes.indexOf(damagedDocument);
  bytes[at + 1]! ^= 0x40;
  fs.writeFileSync(path.join(copy, segment), bytes);
  const damaged = await commands.serve(copy, 'damaged', ['--quarantine=false']);
  const id255 = Buffer.from([0xff]);
  await using({ servers: [damaged.address] }, async (client) => {
    await client.waitReady();
    await assert.rejects(client.get(id255), failsWith('unavailable'));
    const [bad, good] = await client.getMany([id255, id(1)]);
    assert.equal(bad!.error?.code, 'unavailable');
    assert.equal(good!.document?.toString(), document(1));
    assert.equal((await client.getMany([id255]))[0]!.error?.code, 'unavailable');
  });
  await using({ servers: [damaged.address, first.address] }, async (client) => {
    await client.waitReady();
    for (let i = 0; i < 5; i++) {
      assert.deepEqual(await client.get(id255), damagedDocument);
      const answers = await client.getMany([id255, id(1)]);
      assert.deepEqual(answers.map((a) => a.error), [undefined, undefined]);
      assert.deepEqual(answers[0]!.document, damagedDocument);
    }
  });
  await damaged.stop();
});

test('no call fails while servers are killed, stopped and started again', { timeout: 60_000 }, async () => {
  const port = first.address;
  let second = await commands.serve(queue, 'second');
  const address = second.address;
  await using({ servers: [port, address], attemptMs: 500 }, async (client) => {
    await client.waitReady();
    let running = true;
    let calls = 0;
    const load = Array.from({ length: 8 }, async (_, worker) => {
      for (let i = worker; running; i = (i + 8) % documents) {
        if (i % 3 === 0) assert.equal((await client.get(id(i)))?.toString(), document(i));
        else assert.equal((await client.getMany([id(i), 'missing']))[0]!.document?.toString(), document(i));
        calls++;
        await delay(1);
      }
    });
    for (const signal of ['SIGKILL', 'SIGTERM', 'SIGKILL'] as const) {
      await delay(200);
      await second.stop(signal);
      await delay(200);
      second = await commands.serve(queue, 'second', ['--grpc', address]);
      const limit = Date.now() + 10_000;
      while (client.health()[address] !== true && Date.now() < limit) await delay(10);
      assert.equal(client.health()[address], true);
    }
    second.process.kill('SIGSTOP'); // it does not answer: attempts end, and another server is asked
    await delay(1_000);
    second.process.kill('SIGCONT');
    running = false;
    await Promise.all(load);
    assert.ok(calls > 100, `${calls} calls`);
  });
  await second.stop();
});
