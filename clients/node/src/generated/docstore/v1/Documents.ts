// Original file: proto/docservice.proto

import type * as grpc from '@grpc/grpc-js'
import type { MethodDefinition } from '@grpc/proto-loader'
import type { BatchGetRequest as _docstore_v1_BatchGetRequest, BatchGetRequest__Output as _docstore_v1_BatchGetRequest__Output } from '../../docstore/v1/BatchGetRequest';
import type { BatchGetResponse as _docstore_v1_BatchGetResponse, BatchGetResponse__Output as _docstore_v1_BatchGetResponse__Output } from '../../docstore/v1/BatchGetResponse';
import type { DictionaryRequest as _docstore_v1_DictionaryRequest, DictionaryRequest__Output as _docstore_v1_DictionaryRequest__Output } from '../../docstore/v1/DictionaryRequest';
import type { DictionaryResponse as _docstore_v1_DictionaryResponse, DictionaryResponse__Output as _docstore_v1_DictionaryResponse__Output } from '../../docstore/v1/DictionaryResponse';
import type { GetRequest as _docstore_v1_GetRequest, GetRequest__Output as _docstore_v1_GetRequest__Output } from '../../docstore/v1/GetRequest';
import type { GetResponse as _docstore_v1_GetResponse, GetResponse__Output as _docstore_v1_GetResponse__Output } from '../../docstore/v1/GetResponse';
import type { ScanRequest as _docstore_v1_ScanRequest, ScanRequest__Output as _docstore_v1_ScanRequest__Output } from '../../docstore/v1/ScanRequest';
import type { ScanResponse as _docstore_v1_ScanResponse, ScanResponse__Output as _docstore_v1_ScanResponse__Output } from '../../docstore/v1/ScanResponse';
import type { StatsRequest as _docstore_v1_StatsRequest, StatsRequest__Output as _docstore_v1_StatsRequest__Output } from '../../docstore/v1/StatsRequest';
import type { StatsResponse as _docstore_v1_StatsResponse, StatsResponse__Output as _docstore_v1_StatsResponse__Output } from '../../docstore/v1/StatsResponse';

export interface DocumentsClient extends grpc.Client {
  BatchGet(argument: _docstore_v1_BatchGetRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  BatchGet(argument: _docstore_v1_BatchGetRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_docstore_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  BatchGet(argument: _docstore_v1_BatchGetRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  BatchGet(argument: _docstore_v1_BatchGetRequest, callback: grpc.requestCallback<_docstore_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  batchGet(argument: _docstore_v1_BatchGetRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  batchGet(argument: _docstore_v1_BatchGetRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_docstore_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  batchGet(argument: _docstore_v1_BatchGetRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  batchGet(argument: _docstore_v1_BatchGetRequest, callback: grpc.requestCallback<_docstore_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  
  Dictionary(argument: _docstore_v1_DictionaryRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_DictionaryResponse__Output>): grpc.ClientUnaryCall;
  Dictionary(argument: _docstore_v1_DictionaryRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_docstore_v1_DictionaryResponse__Output>): grpc.ClientUnaryCall;
  Dictionary(argument: _docstore_v1_DictionaryRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_DictionaryResponse__Output>): grpc.ClientUnaryCall;
  Dictionary(argument: _docstore_v1_DictionaryRequest, callback: grpc.requestCallback<_docstore_v1_DictionaryResponse__Output>): grpc.ClientUnaryCall;
  dictionary(argument: _docstore_v1_DictionaryRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_DictionaryResponse__Output>): grpc.ClientUnaryCall;
  dictionary(argument: _docstore_v1_DictionaryRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_docstore_v1_DictionaryResponse__Output>): grpc.ClientUnaryCall;
  dictionary(argument: _docstore_v1_DictionaryRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_DictionaryResponse__Output>): grpc.ClientUnaryCall;
  dictionary(argument: _docstore_v1_DictionaryRequest, callback: grpc.requestCallback<_docstore_v1_DictionaryResponse__Output>): grpc.ClientUnaryCall;
  
  Get(argument: _docstore_v1_GetRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  Get(argument: _docstore_v1_GetRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_docstore_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  Get(argument: _docstore_v1_GetRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  Get(argument: _docstore_v1_GetRequest, callback: grpc.requestCallback<_docstore_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  get(argument: _docstore_v1_GetRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  get(argument: _docstore_v1_GetRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_docstore_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  get(argument: _docstore_v1_GetRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  get(argument: _docstore_v1_GetRequest, callback: grpc.requestCallback<_docstore_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  
  Scan(argument: _docstore_v1_ScanRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_ScanResponse__Output>): grpc.ClientUnaryCall;
  Scan(argument: _docstore_v1_ScanRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_docstore_v1_ScanResponse__Output>): grpc.ClientUnaryCall;
  Scan(argument: _docstore_v1_ScanRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_ScanResponse__Output>): grpc.ClientUnaryCall;
  Scan(argument: _docstore_v1_ScanRequest, callback: grpc.requestCallback<_docstore_v1_ScanResponse__Output>): grpc.ClientUnaryCall;
  scan(argument: _docstore_v1_ScanRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_ScanResponse__Output>): grpc.ClientUnaryCall;
  scan(argument: _docstore_v1_ScanRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_docstore_v1_ScanResponse__Output>): grpc.ClientUnaryCall;
  scan(argument: _docstore_v1_ScanRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_ScanResponse__Output>): grpc.ClientUnaryCall;
  scan(argument: _docstore_v1_ScanRequest, callback: grpc.requestCallback<_docstore_v1_ScanResponse__Output>): grpc.ClientUnaryCall;
  
  Stats(argument: _docstore_v1_StatsRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_StatsResponse__Output>): grpc.ClientUnaryCall;
  Stats(argument: _docstore_v1_StatsRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_docstore_v1_StatsResponse__Output>): grpc.ClientUnaryCall;
  Stats(argument: _docstore_v1_StatsRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_StatsResponse__Output>): grpc.ClientUnaryCall;
  Stats(argument: _docstore_v1_StatsRequest, callback: grpc.requestCallback<_docstore_v1_StatsResponse__Output>): grpc.ClientUnaryCall;
  stats(argument: _docstore_v1_StatsRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_StatsResponse__Output>): grpc.ClientUnaryCall;
  stats(argument: _docstore_v1_StatsRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_docstore_v1_StatsResponse__Output>): grpc.ClientUnaryCall;
  stats(argument: _docstore_v1_StatsRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_docstore_v1_StatsResponse__Output>): grpc.ClientUnaryCall;
  stats(argument: _docstore_v1_StatsRequest, callback: grpc.requestCallback<_docstore_v1_StatsResponse__Output>): grpc.ClientUnaryCall;
  
}

export interface DocumentsHandlers extends grpc.UntypedServiceImplementation {
  BatchGet: grpc.handleUnaryCall<_docstore_v1_BatchGetRequest__Output, _docstore_v1_BatchGetResponse>;
  
  Dictionary: grpc.handleUnaryCall<_docstore_v1_DictionaryRequest__Output, _docstore_v1_DictionaryResponse>;
  
  Get: grpc.handleUnaryCall<_docstore_v1_GetRequest__Output, _docstore_v1_GetResponse>;
  
  Scan: grpc.handleUnaryCall<_docstore_v1_ScanRequest__Output, _docstore_v1_ScanResponse>;
  
  Stats: grpc.handleUnaryCall<_docstore_v1_StatsRequest__Output, _docstore_v1_StatsResponse>;
  
}

export interface DocumentsDefinition extends grpc.ServiceDefinition {
  BatchGet: MethodDefinition<_docstore_v1_BatchGetRequest, _docstore_v1_BatchGetResponse, _docstore_v1_BatchGetRequest__Output, _docstore_v1_BatchGetResponse__Output>
  Dictionary: MethodDefinition<_docstore_v1_DictionaryRequest, _docstore_v1_DictionaryResponse, _docstore_v1_DictionaryRequest__Output, _docstore_v1_DictionaryResponse__Output>
  Get: MethodDefinition<_docstore_v1_GetRequest, _docstore_v1_GetResponse, _docstore_v1_GetRequest__Output, _docstore_v1_GetResponse__Output>
  Scan: MethodDefinition<_docstore_v1_ScanRequest, _docstore_v1_ScanResponse, _docstore_v1_ScanRequest__Output, _docstore_v1_ScanResponse__Output>
  Stats: MethodDefinition<_docstore_v1_StatsRequest, _docstore_v1_StatsResponse, _docstore_v1_StatsRequest__Output, _docstore_v1_StatsResponse__Output>
}
