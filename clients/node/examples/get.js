#!/usr/bin/env node
// Fetches documents from servers of docserviced over gRPC:
//
//   docserviced serve --collection jobs=/srv/queue/jobs --data /srv/index --grpc 127.0.0.1:7072
//   node get.js 127.0.0.1:7072[,...] jobs ID...
//
// and from daemons on other hosts with --tls-cert and --token-file:
//
//   node get.js --ca ca.crt --token-file frontend.token docs-1:7072,docs-2:7072 jobs ID...
//
// It writes each document and a newline. The exit status is 1 if a document was not found
// or could not be fetched.
'use strict';

const fs = require('node:fs');
const { parseArgs } = require('node:util');
const { Client, DocstoreError } = require('..'); // docstore-client

async function main() {
  const { values, positionals } = parseArgs({
    options: { ca: { type: 'string' }, 'token-file': { type: 'string' } },
    allowPositionals: true,
  });
  const [servers, collection, ...ids] = positionals;
  if (ids.length === 0) {
    console.error('usage: node get.js [--ca FILE [--token-file FILE]] SERVER[,...] COLLECTION ID...');
    return 2;
  }
  const client = new Client({
    servers: servers.split(','),
    collection,
    ca: values.ca && fs.readFileSync(values.ca),
    token: values['token-file'] && fs.readFileSync(values['token-file'], 'utf8').trim(),
  });
  try {
    let status = 0;
    for (const { id, document, error } of await client.getMany(ids)) {
      if (document !== null) {
        process.stdout.write(Buffer.concat([document, Buffer.from('\n')]));
        continue;
      }
      status = 1;
      console.error(`${id}: ${error?.message ?? 'not found'}`);
    }
    return status;
  } finally {
    client.close();
  }
}

main().then(
  (status) => {
    process.exitCode = status;
  },
  (error) => {
    if (!(error instanceof DocstoreError)) throw error;
    console.error(`${error.code}: ${error.message}`);
    process.exitCode = 1;
  },
);
