// Original file: proto/docservice.proto

export const Status = {
  STATUS_UNSPECIFIED: 'STATUS_UNSPECIFIED',
  STATUS_FOUND: 'STATUS_FOUND',
  STATUS_NOT_FOUND: 'STATUS_NOT_FOUND',
  STATUS_UNAVAILABLE: 'STATUS_UNAVAILABLE',
  STATUS_ERROR: 'STATUS_ERROR',
  STATUS_MOVED: 'STATUS_MOVED',
} as const;

export type Status =
  | 'STATUS_UNSPECIFIED'
  | 0
  | 'STATUS_FOUND'
  | 1
  | 'STATUS_NOT_FOUND'
  | 2
  | 'STATUS_UNAVAILABLE'
  | 3
  | 'STATUS_ERROR'
  | 4
  | 'STATUS_MOVED'
  | 5

export type Status__Output = typeof Status[keyof typeof Status]
