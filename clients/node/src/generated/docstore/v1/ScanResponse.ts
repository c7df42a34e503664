// Original file: proto/docservice.proto

import type { Status as _docstore_v1_Status, Status__Output as _docstore_v1_Status__Output } from '../../docstore/v1/Status';

export interface _docstore_v1_ScanResponse_Entry {
  'status'?: (_docstore_v1_Status);
  'document'?: (Buffer | Uint8Array | string);
  'stored'?: (Buffer | Uint8Array | string);
  'id'?: (Buffer | Uint8Array | string);
}

export interface _docstore_v1_ScanResponse_Entry__Output {
  'status'?: (_docstore_v1_Status__Output);
  'document'?: (Buffer);
  'stored'?: (Buffer);
  'id'?: (Buffer);
}

export interface ScanResponse {
  'entries'?: (_docstore_v1_ScanResponse_Entry)[];
  'next'?: (Buffer | Uint8Array | string);
}

export interface ScanResponse__Output {
  'entries'?: (_docstore_v1_ScanResponse_Entry__Output)[];
  'next'?: (Buffer);
}
