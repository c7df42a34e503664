// Original file: proto/docservice.proto


export interface GetRequest {
  'collection'?: (string);
  'id'?: (Buffer | Uint8Array | string);
  'accept'?: (number);
}

export interface GetRequest__Output {
  'collection'?: (string);
  'id'?: (Buffer);
  'accept'?: (number);
}
