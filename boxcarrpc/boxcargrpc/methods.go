package boxcargrpc

import (
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"docstore/boxcarrpc"
)

// Methods tells a pool which methods of the services in some .proto files may be
// sent again: those whose idempotency_level is NO_SIDE_EFFECTS or IDEMPOTENT. It
// is for boxcarrpc.PoolOptions.Methods.
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
