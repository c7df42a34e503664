package boxcargrpc

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
)

// invoke makes a unary call. It is the innermost interceptor.
func (c *client) invoke(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, _ grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var r result
	err := checkOpen(cc)
	if err == nil {
		err = c.unary(ctx, method, request, reply, opts, &r)
	}
	r.tell(opts, err)
	return err
}

func (c *client) unary(ctx context.Context, method string, request, reply any, opts []grpc.CallOption, r *result) error {
	o, err := c.readOptions(opts)
	if err != nil {
		return err
	}
	m, err := c.requestMetadata(ctx, method, &o)
	if err != nil {
		return err
	}
	out, in := takeBuffer(), takeBuffer()
	defer keepBuffer(out)
	defer keepBuffer(in)
	if *out, err = o.marshal(*out, request); err != nil {
		return err
	}
	info := boxcarrpc.CallInfo{Metadata: m}
	*in, err = c.pool.CallWith(ctx, method, *out, *in, &info)
	r.header, r.trailer, r.server = info.Header, info.Trailer, info.Server
	if err != nil {
		return callFailed(ctx, err, r.trailer)
	}
	return o.unmarshal(*in, reply)
}

// requestMetadata returns the metadata of a call, from its context and its credentials,
// or nil.
func (c *client) requestMetadata(ctx context.Context, method string, o *callOptions) (boxcarrpc.Metadata, error) {
	m := o.codec.announce(nil)
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		if err := validate(md); err != nil {
			return nil, err
		}
		m = appendPairs(m, md)
	}
	for _, one := range o.credentials {
		md, err := c.credentialsOf(ctx, method, one)
		if err != nil {
			return nil, err
		}
		m = appendPairs(m, md)
	}
	return m, nil
}

// credentialsOf returns the metadata that credentials add to a call.
func (c *client) credentialsOf(ctx context.Context, method string, from credentials.PerRPCCredentials) (metadata.MD, error) {
	if from.RequireTransportSecurity() && !c.secure {
		return nil, status.Error(codes.Unauthenticated, "cannot send secure credentials over a pool without TLS")
	}
	info := credentials.RequestInfo{Method: method, AuthInfo: plain}
	if c.secure {
		info.AuthInfo = secured
	}
	ctx = credentials.NewContextWithRequestInfo(ctx, info)
	service, _, _ := cutMethod(method)
	pairs, err := from.GetRequestMetadata(ctx, "https://"+c.name+"/"+service)
	if err != nil {
		return nil, credentialsFailed(err)
	}
	md := make(metadata.MD, len(pairs))
	for key, value := range pairs {
		md[strings.ToLower(key)] = []string{value}
	}
	return md, validate(md)
}

// credentialsFailed returns the error of a call whose credentials failed. It must not
// have a code that is reserved for the server.
func credentialsFailed(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return status.Errorf(codes.Unauthenticated, "per-RPC credentials failed: %v", err)
	}
	switch s.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.DataLoss:
		return status.Errorf(codes.Internal, "per-RPC credentials failed with a code reserved for servers: %v", err)
	}
	return err
}
