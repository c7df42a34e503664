// Original file: proto/docservice.proto


export interface BatchGetRequest {
  'collection'?: (string);
  'ids'?: (Buffer | Uint8Array | string)[];
  'accept'?: (number);
}

export interface BatchGetRequest__Output {
  'collection'?: (string);
  'ids'?: (Buffer)[];
  'accept'?: (number);
}
