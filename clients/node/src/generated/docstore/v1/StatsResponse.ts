// Original file: proto/docservice.proto

import type { CollectionStats as _docstore_v1_CollectionStats, CollectionStats__Output as _docstore_v1_CollectionStats__Output } from '../../docstore/v1/CollectionStats';

export interface StatsResponse {
  'collections'?: (_docstore_v1_CollectionStats)[];
}

export interface StatsResponse__Output {
  'collections'?: (_docstore_v1_CollectionStats__Output)[];
}
