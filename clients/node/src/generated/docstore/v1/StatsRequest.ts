// Original file: proto/docservice.proto


export interface StatsRequest {
  'collection'?: (string);
}

export interface StatsRequest__Output {
  'collection'?: (string);
}
