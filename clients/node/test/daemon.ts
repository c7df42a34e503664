import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import * as fs from 'node:fs';
import * as os from 'node:os';
import * as path from 'node:path';
import * as readline from 'node:readline';

const repository = path.join(__dirname, '../../../..');

/** Commands builds the commands in a temporary directory, or uses those in DOCSTORE_BIN. */
export class Commands {
  readonly dir = fs.mkdtempSync(path.join(os.tmpdir(), 'docstore-node-'));
  private readonly bin: string;
  private readonly children: ChildProcess[] = [];

  constructor() {
    this.bin = process.env['DOCSTORE_BIN'] ?? path.join(this.dir, 'bin');
    if (process.env['DOCSTORE_BIN'] === undefined) {
      run('go', ['build', '-o', this.bin + path.sep, './cmd/docserviced', './cmd/docstore-updater'], { cwd: repository });
    }
  }

  /** append appends NDJSON to a queue and returns its directory. */
  append(name: string, lines: string): string {
    const queue = path.join(this.dir, name);
    run(path.join(this.bin, 'docstore-updater'), ['append', '--queue', queue, '--quiet'], { input: lines });
    return queue;
  }

  /** serve starts a daemon and waits until it has read its queue. */
  async serve(queue: string, name: string, flags: string[] = []): Promise<Daemon> {
    const child = spawn(path.join(this.bin, 'docserviced'), [
      ...['serve', '--collection', `jobs=${queue}`, '--data', path.join(this.dir, name), '--quiet', '--memory', '64MiB'],
      ...['--boxcar', '127.0.0.1:0', '--http', '127.0.0.1:0', '--grpc', '127.0.0.1:0', ...flags],
    ], { stdio: ['ignore', 'ignore', 'pipe'] });
    this.children.push(child);
    const lines = readline.createInterface({ input: child.stderr! });
    let addresses: { grpc: string; http: string } | undefined;
    let ready = false;
    for await (const text of lines) {
      const line = JSON.parse(text) as { msg: string; grpc: string; http: string };
      if (line.msg === 'serving') addresses = line;
      ready ||= line.msg === 'the queue has been read to its end';
      if (addresses !== undefined && ready) break;
    }
    child.stderr!.resume();
    if (addresses === undefined || !ready) throw new Error('the daemon exited');
    return new Daemon(child, addresses.grpc, addresses.http);
  }

  /** end stops the daemons and removes the directory. */
  async end(): Promise<void> {
    await Promise.all(this.children.map((child) => stop(child)));
    fs.rmSync(this.dir, { recursive: true, force: true });
  }
}

function run(command: string, args: string[], options: { cwd?: string; input?: string }): void {
  const result = spawnSync(command, args, { ...options, encoding: 'utf8' });
  if (result.status !== 0) throw new Error(`${command}: ${result.error?.message ?? result.stderr}`);
}

export class Daemon {
  constructor(
    readonly process: ChildProcess,
    readonly address: string,
    readonly http: string,
  ) {}

  stop(signal?: NodeJS.Signals): Promise<void> {
    return stop(this.process, signal);
  }
}

async function stop(process: ChildProcess, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  if (process.exitCode !== null || process.signalCode !== null) return;
  const exited = once(process, 'exit');
  process.kill(signal);
  await exited;
}
