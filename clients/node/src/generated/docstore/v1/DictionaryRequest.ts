// Original file: proto/docservice.proto


export interface DictionaryRequest {
  'collection'?: (string);
  'hash'?: (Buffer | Uint8Array | string);
}

export interface DictionaryRequest__Output {
  'collection'?: (string);
  'hash'?: (Buffer);
}
