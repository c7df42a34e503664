import type * as grpc from '@grpc/grpc-js';
import type { EnumTypeDefinition, MessageTypeDefinition } from '@grpc/proto-loader';

import type { BatchGetRequest as _docstore_v1_BatchGetRequest, BatchGetRequest__Output as _docstore_v1_BatchGetRequest__Output } from './docstore/v1/BatchGetRequest';
import type { BatchGetResponse as _docstore_v1_BatchGetResponse, BatchGetResponse__Output as _docstore_v1_BatchGetResponse__Output } from './docstore/v1/BatchGetResponse';
import type { CollectionStats as _docstore_v1_CollectionStats, CollectionStats__Output as _docstore_v1_CollectionStats__Output } from './docstore/v1/CollectionStats';
import type { DictionaryRequest as _docstore_v1_DictionaryRequest, DictionaryRequest__Output as _docstore_v1_DictionaryRequest__Output } from './docstore/v1/DictionaryRequest';
import type { DictionaryResponse as _docstore_v1_DictionaryResponse, DictionaryResponse__Output as _docstore_v1_DictionaryResponse__Output } from './docstore/v1/DictionaryResponse';
import type { DocumentsClient as _docstore_v1_DocumentsClient, DocumentsDefinition as _docstore_v1_DocumentsDefinition } from './docstore/v1/Documents';
import type { Fault as _docstore_v1_Fault, Fault__Output as _docstore_v1_Fault__Output } from './docstore/v1/Fault';
import type { GetRequest as _docstore_v1_GetRequest, GetRequest__Output as _docstore_v1_GetRequest__Output } from './docstore/v1/GetRequest';
import type { GetResponse as _docstore_v1_GetResponse, GetResponse__Output as _docstore_v1_GetResponse__Output } from './docstore/v1/GetResponse';
import type { Position as _docstore_v1_Position, Position__Output as _docstore_v1_Position__Output } from './docstore/v1/Position';
import type { ScanRequest as _docstore_v1_ScanRequest, ScanRequest__Output as _docstore_v1_ScanRequest__Output } from './docstore/v1/ScanRequest';
import type { ScanResponse as _docstore_v1_ScanResponse, ScanResponse__Output as _docstore_v1_ScanResponse__Output } from './docstore/v1/ScanResponse';
import type { StatsRequest as _docstore_v1_StatsRequest, StatsRequest__Output as _docstore_v1_StatsRequest__Output } from './docstore/v1/StatsRequest';
import type { StatsResponse as _docstore_v1_StatsResponse, StatsResponse__Output as _docstore_v1_StatsResponse__Output } from './docstore/v1/StatsResponse';

type SubtypeConstructor<Constructor extends new (...args: any) => any, Subtype> = {
  new(...args: ConstructorParameters<Constructor>): Subtype;
};

export interface ProtoGrpcType {
  docstore: {
    v1: {
      BatchGetRequest: MessageTypeDefinition<_docstore_v1_BatchGetRequest, _docstore_v1_BatchGetRequest__Output>
      BatchGetResponse: MessageTypeDefinition<_docstore_v1_BatchGetResponse, _docstore_v1_BatchGetResponse__Output>
      CollectionStats: MessageTypeDefinition<_docstore_v1_CollectionStats, _docstore_v1_CollectionStats__Output>
      DictionaryRequest: MessageTypeDefinition<_docstore_v1_DictionaryRequest, _docstore_v1_DictionaryRequest__Output>
      DictionaryResponse: MessageTypeDefinition<_docstore_v1_DictionaryResponse, _docstore_v1_DictionaryResponse__Output>
      Documents: SubtypeConstructor<typeof grpc.Client, _docstore_v1_DocumentsClient> & { service: _docstore_v1_DocumentsDefinition }
      Fault: MessageTypeDefinition<_docstore_v1_Fault, _docstore_v1_Fault__Output>
      GetRequest: MessageTypeDefinition<_docstore_v1_GetRequest, _docstore_v1_GetRequest__Output>
      GetResponse: MessageTypeDefinition<_docstore_v1_GetResponse, _docstore_v1_GetResponse__Output>
      Position: MessageTypeDefinition<_docstore_v1_Position, _docstore_v1_Position__Output>
      ScanRequest: MessageTypeDefinition<_docstore_v1_ScanRequest, _docstore_v1_ScanRequest__Output>
      ScanResponse: MessageTypeDefinition<_docstore_v1_ScanResponse, _docstore_v1_ScanResponse__Output>
      StatsRequest: MessageTypeDefinition<_docstore_v1_StatsRequest, _docstore_v1_StatsRequest__Output>
      StatsResponse: MessageTypeDefinition<_docstore_v1_StatsResponse, _docstore_v1_StatsResponse__Output>
      Status: EnumTypeDefinition
    }
  }
}

