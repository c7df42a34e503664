// Original file: proto/docservice.proto

import type { Position as _docstore_v1_Position, Position__Output as _docstore_v1_Position__Output } from '../../docstore/v1/Position';
import type { Fault as _docstore_v1_Fault, Fault__Output as _docstore_v1_Fault__Output } from '../../docstore/v1/Fault';
import type { Long } from '@grpc/proto-loader';

export interface CollectionStats {
  'name'?: (string);
  'ready'?: (boolean);
  'position'?: (_docstore_v1_Position | null);
  'lagBytes'?: (number | string | Long);
  'lagMilliseconds'?: (number | string | Long);
  'indexEntries'?: (number | string | Long);
  'indexTables'?: (number | string | Long);
  'indexBytes'?: (number | string | Long);
  'segments'?: (number | string | Long);
  'segmentBytes'?: (number | string | Long);
  'segmentDocuments'?: (number | string | Long);
  'segmentDeletes'?: (number | string | Long);
  'entriesApplied'?: (number | string | Long);
  'getsFound'?: (number | string | Long);
  'getsNotFound'?: (number | string | Long);
  'getsUnavailable'?: (number | string | Long);
  'getsFailed'?: (number | string | Long);
  'faults'?: (_docstore_v1_Fault)[];
  'faultsNotListed'?: (number | string | Long);
}

export interface CollectionStats__Output {
  'name'?: (string);
  'ready'?: (boolean);
  'position'?: (_docstore_v1_Position__Output);
  'lagBytes'?: (number);
  'lagMilliseconds'?: (number);
  'indexEntries'?: (number);
  'indexTables'?: (number);
  'indexBytes'?: (number);
  'segments'?: (number);
  'segmentBytes'?: (number);
  'segmentDocuments'?: (number);
  'segmentDeletes'?: (number);
  'entriesApplied'?: (number);
  'getsFound'?: (number);
  'getsNotFound'?: (number);
  'getsUnavailable'?: (number);
  'getsFailed'?: (number);
  'faults'?: (_docstore_v1_Fault__Output)[];
  'faultsNotListed'?: (number);
}
