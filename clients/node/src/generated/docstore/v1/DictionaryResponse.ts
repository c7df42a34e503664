// Original file: proto/docservice.proto


export interface DictionaryResponse {
  'dictionary'?: (Buffer | Uint8Array | string);
}

export interface DictionaryResponse__Output {
  'dictionary'?: (Buffer);
}
