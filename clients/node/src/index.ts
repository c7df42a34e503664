export { Client } from './client';
export type { Answer, CallOptions, ClientOptions, Entry, ScanOptions } from './client';
export type { ID } from './arguments';
export { DocstoreError } from './errors';
export type { ErrorCode } from './errors';
export type { CollectionStats__Output as CollectionStats } from './generated/docstore/v1/CollectionStats';
