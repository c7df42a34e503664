import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import * as fs from 'node:fs';
import * as os from 'node:os';
import * as path from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';

import { Commands } from './daemon';

const client = path.join(__dirname, '../..');
const program = `
const jobs = new Client({ servers: [process.argv[2]!], collection: 'jobs', timeoutMs: 30_000 });
const document: Buffer | null = await jobs.get('4711');
console.log(String(document));
jobs.close();
`;

let commands: Commands;
let address: string;
const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'docstore-pack-'));
const source = path.join(directory, 'source');

before(async () => {
  commands = new Commands();
  const queue = commands.append('queue', '{"id":"4711","title":"Night baker"}\n');
  address = (await commands.serve(queue, 'pack')).address;
  for (const name of ['package.json', 'package-lock.json', 'tsconfig.json', 'src', 'proto', 'test']) {
    fs.cpSync(path.join(client, name), path.join(source, name), { recursive: true });
  }
});
after(async () => {
  await commands.end();
  fs.rmSync(directory, { recursive: true });
});

/** npm and node run without the settings that npm test gives to this process. */
async function run(cwd: string, command: string, ...args: string[]): Promise<string> {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(npm_|node_test)/i.test(name)));
  return (await promisify(execFile)(command, args, { cwd, env })).stdout;
}

function application(name: string): string {
  const app = path.join(directory, name);
  fs.mkdirSync(app);
  fs.writeFileSync(path.join(app, 'package.json'), JSON.stringify({ name, private: true, type: 'module' }));
  fs.writeFileSync(path.join(app, 'get.js'), `import { Client } from 'docstore-client';${program.replace('!', '').replace(/: Buffer . null/, '')}`);
  return app;
}

const npmFlags = ['--prefer-offline', '--no-audit', '--no-fund'];

test('npm install of the directory builds the client, and a program in another directory uses it', async () => {
  const app = application('linked');
  await run(app, 'npm', 'install', ...npmFlags, source);
  assert.equal(await run(app, 'node', 'get.js', address), '{"id":"4711","title":"Night baker"}\n');
});

test('the package has what a program and its types need', async () => {
  const app = application('packed');
  const [packed] = JSON.parse(await run(source, 'npm', 'pack', '--ignore-scripts', '--json', '--pack-destination', app));
  assert.deepEqual(packed.files.filter((f: { path: string }) => !/^(package\.json|README\.md|proto\/.*\.proto|dist\/src\/.*\.(js|d\.ts))$/.test(f.path)), []);
  // With the versions of the lock file, npm needs only what it has in its cache.
  const lock = JSON.parse(fs.readFileSync(path.join(client, 'package-lock.json'), 'utf8'));
  const { dependencies } = lock.packages[''];
  const tarball = `file:${packed.filename}`;
  const root = { dependencies: { 'docstore-client': tarball } };
  lock.packages = Object.fromEntries(Object.entries(lock.packages).filter(([, one]) => !(one as { dev?: boolean }).dev));
  lock.packages[''] = root;
  lock.packages['node_modules/docstore-client'] = { version: packed.version, resolved: tarball, integrity: packed.integrity, dependencies };
  fs.writeFileSync(path.join(app, 'package-lock.json'), JSON.stringify(lock));
  fs.writeFileSync(path.join(app, 'package.json'), JSON.stringify({ ...root, private: true, type: 'module' }));
  await run(app, 'npm', 'ci', ...npmFlags);
  assert.equal(await run(app, 'node', 'get.js', address), '{"id":"4711","title":"Night baker"}\n');

  fs.writeFileSync(path.join(app, 'get.ts'), `import { Client } from 'docstore-client';${program}`);
  const modules = path.join(source, 'node_modules');
  const flags = ['--noEmit', '--strict', '--target', 'es2022', '--module', 'node16', '--types', 'node', '--typeRoots', path.join(modules, '@types')];
  await run(app, path.join(modules, '.bin/tsc'), ...flags, 'get.ts');
});
