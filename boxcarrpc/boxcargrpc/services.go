package boxcargrpc

import (
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"

	"docstore/boxcarrpc"
)

// ServicesOptions are the options of Services. The zero value, and a nil
// *ServicesOptions, mean the defaults.
type ServicesOptions struct {
	// UnaryInterceptors are called for every unary call, the first outermost.
	UnaryInterceptors []grpc.UnaryServerInterceptor
	// StreamInterceptors are called for every stream, the first outermost.
	StreamInterceptors []grpc.StreamServerInterceptor
	// Handler serves calls of unknown methods. The default returns UNIMPLEMENTED.
	Handler boxcarrpc.Handler
	// StreamHandler serves streams of unknown methods. The default returns
	// UNIMPLEMENTED.
	StreamHandler boxcarrpc.StreamHandler
}

// Services are implementations of gRPC services for a boxcarrpc server: see Handle and
// HandleStream. It implements grpc.ServiceRegistrar for generated code, and
// reflection.GRPCServer.
type Services struct {
	options ServicesOptions
	unary   grpc.UnaryServerInterceptor
	stream  grpc.StreamServerInterceptor
	codec   codec
	byName  map[string]*service
	methods map[string]*method // by full name
	serving atomic.Bool        // registration is no longer allowed
}

type service struct {
	implementation any
	info           grpc.ServiceInfo
}

// A method is a method of a service. unary is nil for a stream.
type method struct {
	service *service
	name    string // full
	unary   *grpc.MethodDesc
	stream  *grpc.StreamDesc
}

// NewServices returns an empty set of services. opts may be nil.
func NewServices(opts *ServicesOptions) *Services {
	s := &Services{codec: protobuf(), byName: make(map[string]*service), methods: make(map[string]*method)}
	if opts != nil {
		s.options = *opts
	}
	s.unary = chainUnary(s.options.UnaryInterceptors)
	s.stream = chainStream(s.options.StreamInterceptors)
	return s
}

// RegisterService adds a service. Generated code calls it. It panics if the name is
// registered, if implementation does not implement desc, or after the first request.
func (s *Services) RegisterService(desc *grpc.ServiceDesc, implementation any) {
	switch {
	case s.serving.Load():
		panic(fmt.Sprintf("boxcargrpc: service %s registered after the first request", desc.ServiceName))
	case s.byName[desc.ServiceName] != nil:
		panic(fmt.Sprintf("boxcargrpc: service %s registered twice", desc.ServiceName))
	}
	if implementation != nil {
		want := reflect.TypeOf(desc.HandlerType).Elem()
		if got := reflect.TypeOf(implementation); !got.Implements(want) {
			panic(fmt.Sprintf("boxcargrpc: service %s needs a %v, %v is none", desc.ServiceName, want, got))
		}
	}
	one := &service{implementation: implementation, info: grpc.ServiceInfo{Metadata: desc.Metadata}}
	for i := range desc.Methods {
		unary := &desc.Methods[i]
		s.add(one, desc.ServiceName, &method{unary: unary, stream: &grpc.StreamDesc{StreamName: unary.MethodName, Handler: s.asStream(unary)}})
	}
	for i := range desc.Streams {
		s.add(one, desc.ServiceName, &method{stream: &desc.Streams[i]})
	}
	s.byName[desc.ServiceName] = one
}

func (s *Services) add(to *service, name string, m *method) {
	m.service = to
	m.name = "/" + name + "/" + m.stream.StreamName
	s.methods[m.name] = m
	to.info.Methods = append(to.info.Methods, grpc.MethodInfo{
		Name:           m.stream.StreamName,
		IsClientStream: m.stream.ClientStreams,
		IsServerStream: m.stream.ServerStreams,
	})
}

// GetServiceInfo returns the services by name, for reflection.
func (s *Services) GetServiceInfo() map[string]grpc.ServiceInfo {
	r := make(map[string]grpc.ServiceInfo, len(s.byName))
	for name, one := range s.byName {
		r[name] = one.info
	}
	return r
}

// find returns the method with a full name, or nil.
func (s *Services) find(name string) *method {
	if !s.serving.Load() {
		s.serving.Store(true)
	}
	return s.methods[name]
}

// unimplemented returns the error for an unknown method.
func (s *Services) unimplemented(name string) error {
	service, method, ok := cutMethod(name)
	e := &boxcarrpc.Error{Code: boxcarrpc.CodeUnimplemented, Processed: true}
	switch {
	case !ok:
		e.Message = fmt.Sprintf("malformed method name: %q", name)
	case s.byName[service] == nil:
		e.Message = "unknown service " + service
	default:
		e.Message = fmt.Sprintf("unknown method %s for service %s", method, service)
	}
	return e
}

// cutMethod splits the full name of a method.
func cutMethod(name string) (service, method string, ok bool) {
	name, ok = strings.CutPrefix(name, "/")
	i := strings.LastIndexByte(name, '/')
	if !ok || i < 0 {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}
