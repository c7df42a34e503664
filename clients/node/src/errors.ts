import { status, type ServiceError } from '@grpc/grpc-js';

/**
 * ErrorCode is the kind of a failure. unavailable: the servers that were asked cannot read
 * the document now. moved: the collection is divided into shards, and the server does not
 * have the shard. no_server: no server answered. The others are failures of the call.
 */
export type ErrorCode =
  | 'unavailable'
  | 'moved'
  | 'no_server'
  | 'no_collection'
  | 'invalid_argument'
  | 'unauthenticated'
  | 'permission_denied'
  | 'resource_exhausted'
  | 'deadline_exceeded'
  | 'aborted'
  | 'internal';

/** DocstoreError is the error of every method of a Client. Its cause is that of gRPC. */
export class DocstoreError extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'DocstoreError';
    this.code = code;
  }
}

const codes: Partial<Record<status, ErrorCode>> = {
  [status.UNAVAILABLE]: 'unavailable',
  [status.NOT_FOUND]: 'no_collection',
  [status.INVALID_ARGUMENT]: 'invalid_argument',
  [status.UNAUTHENTICATED]: 'unauthenticated',
  [status.PERMISSION_DENIED]: 'permission_denied',
  [status.RESOURCE_EXHAUSTED]: 'resource_exhausted',
  [status.DEADLINE_EXCEEDED]: 'deadline_exceeded',
  [status.CANCELLED]: 'aborted',
};

/** errorOf converts the error of a call. answered: the server sent it. */
export function errorOf(error: ServiceError, address: string, answered: boolean): DocstoreError {
  let code = codes[error.code] ?? 'internal';
  if (code === 'unavailable' && !answered) code = 'no_server';
  return new DocstoreError(code, `${address}: ${error.details || error.message}`, error);
}
