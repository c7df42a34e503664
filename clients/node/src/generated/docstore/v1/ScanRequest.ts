// Original file: proto/docservice.proto


export interface ScanRequest {
  'collection'?: (string);
  'prefix'?: (Buffer | Uint8Array | string);
  'after'?: (Buffer | Uint8Array | string);
  'limit'?: (number);
  'accept'?: (number);
  'idsOnly'?: (boolean);
}

export interface ScanRequest__Output {
  'collection'?: (string);
  'prefix'?: (Buffer);
  'after'?: (Buffer);
  'limit'?: (number);
  'accept'?: (number);
  'idsOnly'?: (boolean);
}
