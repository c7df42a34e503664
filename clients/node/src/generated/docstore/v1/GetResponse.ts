// Original file: proto/docservice.proto

import type { Status as _docstore_v1_Status, Status__Output as _docstore_v1_Status__Output } from '../../docstore/v1/Status';

export interface GetResponse {
  'status'?: (_docstore_v1_Status);
  'document'?: (Buffer | Uint8Array | string);
  'stored'?: (Buffer | Uint8Array | string);
}

export interface GetResponse__Output {
  'status'?: (_docstore_v1_Status__Output);
  'document'?: (Buffer);
  'stored'?: (Buffer);
}
