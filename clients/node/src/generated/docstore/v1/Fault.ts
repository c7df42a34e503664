// Original file: proto/docservice.proto

import type { Long } from '@grpc/proto-loader';

export interface Fault {
  'segment'?: (number);
  'offset'?: (number | string | Long);
  'path'?: (string);
  'reason'?: (string);
  'sinceUnixMilliseconds'?: (number | string | Long);
  'stopsTail'?: (boolean);
}

export interface Fault__Output {
  'segment'?: (number);
  'offset'?: (number);
  'path'?: (string);
  'reason'?: (string);
  'sinceUnixMilliseconds'?: (number);
  'stopsTail'?: (boolean);
}
