package boxcargrpc

import (
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"

	"docstore/boxcarrpc"
)

// ServicesOptions shape how services are served. The zero value, and a nil
// *ServicesOptions, mean nothing.
type ServicesOptions struct {
	// UnaryInterceptors are around every unary method, the first outermost.
	UnaryInterceptors []grpc.UnaryServerInterceptor
	// StreamInterceptors are around every stream, the first outermost.
	StreamInterceptors []grpc.StreamServerInterceptor
	// Handler serves the calls of methods that no service has. The default answers
	// UNIMPLEMENTED.
	Handler boxcarrpc.Handler
	// StreamHandler serves the streams of such methods.
	StreamHandler boxcarrpc.StreamHandler
}

// Services are implementations of services that a boxcarrpc server serves: see
// Handle and HandleStream. They take what generated code registers, and what
// grpc-go's health and reflection do.
type Services struct {
	options ServicesOptions
	unary   grpc.UnaryServerInterceptor
	stream  grpc.StreamServerInterceptor
	codec   codec
	byName  map[string]*service
	methods map[string]*method // by full name
	serving atomic.Bool        // no more are registered
}

type service struct {
	implementation any
	info           grpc.ServiceInfo
}

// A method is one of a service: unary is nil if it is a stream.
type method struct {
	service *service
	name    string // full
	unary   *grpc.MethodDesc
	stream  *grpc.StreamDesc
}

// NewServices makes an empty set of services; opts may be nil.
func NewServices(opts *ServicesOptions) *Services {
	s := &Services{codec: protobuf(), byName: make(map[string]*service), methods: make(map[string]*method)}
	if opts != nil {
		s.options = *opts
	}
	s.unary = chainUnary(s.options.UnaryInterceptors)
	s.stream = chainStream(s.options.StreamInterceptors)
	return s
}

// RegisterService adds a service; generated code calls it. It panics if there is
// one of that name already, if implementation does not have the methods that desc
// wants, and when the first request has been served.
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

// GetServiceInfo describes the services by their names, for reflection.
func (s *Services) GetServiceInfo() map[string]grpc.ServiceInfo {
	r := make(map[string]grpc.ServiceInfo, len(s.byName))
	for name, one := range s.byName {
		r[name] = one.info
	}
	return r
}

// find returns the method of that name, nil if there is none.
func (s *Services) find(name string) *method {
	if !s.serving.Load() {
		s.serving.Store(true)
	}
	return s.methods[name]
}

// unimplemented is the answer for a method that find does not find.
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
