// Original file: proto/docservice.proto


export interface Position {
  'queueId'?: (Buffer | Uint8Array | string);
  'segment'?: (number);
  'block'?: (number);
  'index'?: (number);
}

export interface Position__Output {
  'queueId'?: (Buffer);
  'segment'?: (number);
  'block'?: (number);
  'index'?: (number);
}
