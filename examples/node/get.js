#!/usr/bin/env node
// Fetches documents from docserviced over gRPC:
//
//   docserviced serve --collection jobs=/srv/queue/jobs --data /srv/index --grpc 127.0.0.1:7072
//   npm ci
//   node get.js 127.0.0.1:7072 jobs ID...
//
// and from a daemon on another host with --tls-cert and --token-file:
//
//   node get.js --ca ca.crt --token-file frontend.token docs-1:7072 jobs ID...
//
// It writes each document and a newline. The exit status is 1 if a document was not found
// or a call failed.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const PROTO = path.join(__dirname, '../../docservice/docservicepb/docservice.proto');
const MAX_RESPONSE_BYTES = 32 * 1024 * 1024; // the limit of a batch; gRPC's default is 4 MiB
const TIMEOUT_MS = 5_000;

function connect(address, options) {
  const definition = protoLoader.loadSync(PROTO, { enums: String, longs: Number, keepCase: true });
  const { Documents } = grpc.loadPackageDefinition(definition).docstore.v1;
  return new Documents(address, credentials(options), {
    'grpc.max_receive_message_length': MAX_RESPONSE_BYTES,
  });
}

// credentials returns plain text, or TLS with an optional token.
function credentials({ ca, 'token-file': tokenFile }) {
  if (ca === undefined) {
    if (tokenFile !== undefined) throw new Error('--token-file needs --ca: a token is not sent in plain text');
    return grpc.credentials.createInsecure();
  }
  const tls = grpc.credentials.createSsl(fs.readFileSync(ca));
  if (tokenFile === undefined) return tls;
  const metadata = new grpc.Metadata();
  metadata.set('authorization', `Bearer ${fs.readFileSync(tokenFile, 'utf8').trim()}`);
  return grpc.credentials.combineChannelCredentials(
    tls,
    grpc.credentials.createFromMetadataGenerator((_, done) => done(null, metadata)),
  );
}

// call returns the promise of a unary call.
function call(client, method, request) {
  return new Promise((resolve, reject) => {
    client[method](request, { deadline: Date.now() + TIMEOUT_MS }, (error, response) => {
      if (error) reject(error);
      else resolve(response);
    });
  });
}

async function main() {
  const { values, positionals } = parseArgs({
    options: { ca: { type: 'string' }, 'token-file': { type: 'string' } },
    allowPositionals: true,
  });
  const [address, collection, ...ids] = positionals;
  if (ids.length === 0) {
    console.error('usage: node get.js [--ca FILE [--token-file FILE]] ADDRESS COLLECTION ID...');
    return 2;
  }
  const client = connect(address, values);
  try {
    if (ids.length === 1) {
      const response = await call(client, 'Get', { collection, id: Buffer.from(ids[0]) });
      return show(ids[0], response);
    }
    let status = 0;
    while (ids.length > 0) {
      const { answers } = await call(client, 'BatchGet', { collection, ids: ids.map((id) => Buffer.from(id)) });
      for (const answer of answers) status = Math.max(status, show(ids.shift(), answer));
    } // request again the ids that did not fit into one response
    return status;
  } finally {
    client.close();
  }
}

// show writes a document, or its status to standard error.
function show(id, answer) {
  if (answer.status !== 'STATUS_FOUND') {
    console.error(`${id}: ${answer.status.replace('STATUS_', '').replace('_', ' ').toLowerCase()}`);
    return 1;
  }
  process.stdout.write(Buffer.concat([answer.document ?? Buffer.alloc(0), Buffer.from('\n')]));
  return 0;
}

main().then(
  (status) => {
    process.exitCode = status;
  },
  (error) => {
    console.error(grpc.status[error.code] ? `${grpc.status[error.code]}: ${error.details}` : error.message);
    process.exitCode = 1;
  },
);
