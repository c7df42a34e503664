// Original file: proto/docservice.proto

import type { Status as _docstore_v1_Status, Status__Output as _docstore_v1_Status__Output } from '../../docstore/v1/Status';

export interface _docstore_v1_BatchGetResponse_Answer {
  'status'?: (_docstore_v1_Status);
  'document'?: (Buffer | Uint8Array | string);
  'stored'?: (Buffer | Uint8Array | string);
}

export interface _docstore_v1_BatchGetResponse_Answer__Output {
  'status'?: (_docstore_v1_Status__Output);
  'document'?: (Buffer);
  'stored'?: (Buffer);
}

export interface BatchGetResponse {
  'answers'?: (_docstore_v1_BatchGetResponse_Answer)[];
  'leftOut'?: (number);
}

export interface BatchGetResponse__Output {
  'answers'?: (_docstore_v1_BatchGetResponse_Answer__Output)[];
  'leftOut'?: (number);
}
