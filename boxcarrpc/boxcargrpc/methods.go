package boxcargrpc

import (
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"docstore/boxcarrpc"
)

// Methods returns the idempotent methods of the services in .proto files, for
// boxcarrpc.PoolOptions.Methods: those with idempotency_level NO_SIDE_EFFECTS or
// IDEMPOTENT, which a pool may retry.
func Methods(files ...protoreflect.FileDescriptor) map[string]boxcarrpc.Method {
	r := make(map[string]boxcarrpc.Method)
	for _, file := range files {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				method := service.Methods().Get(j)
				options, _ := method.Options().(*descriptorpb.MethodOptions)
				if options.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN {
					r["/"+string(service.FullName())+"/"+string(method.Name())] = boxcarrpc.Method{Idempotent: true}
				}
			}
		}
	}
	return r
}
