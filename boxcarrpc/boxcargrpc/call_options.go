package boxcargrpc

import (
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
)

// callOptions has the options of a call that apply before it starts.
type callOptions struct {
	codec       codec
	credentials []credentials.PerRPCCredentials
	maxSend     int
	maxReceive  int
}

// readOptions reads the options of a call. It ignores options for HTTP/2 and connections
// (compression, authority, wait for ready, retry buffer).
func (c *client) readOptions(opts []grpc.CallOption) (callOptions, error) {
	o := callOptions{codec: c.codec, credentials: c.credentials, maxSend: boxcarrpc.MaxRequestBytes, maxReceive: boxcarrpc.MaxResponseBytes}
	var name string
	var forced bool
	for _, option := range opts {
		switch option := option.(type) {
		case grpc.PerRPCCredsCallOption:
			o.credentials = append(o.credentials[:len(o.credentials):len(o.credentials)], option.Creds)
		case grpc.MaxSendMsgSizeCallOption:
			o.maxSend = min(option.MaxSendMsgSize, boxcarrpc.MaxRequestBytes)
		case grpc.MaxRecvMsgSizeCallOption:
			o.maxReceive = option.MaxRecvMsgSize
		case grpc.ContentSubtypeCallOption:
			name = option.ContentSubtype
		case grpc.ForceCodecCallOption:
			o.codec, forced = codec{codecV1{option.Codec}, strings.ToLower(option.Codec.Name()), false}, true
		case grpc.ForceCodecV2CallOption:
			o.codec, forced = codec{option.CodecV2, strings.ToLower(option.CodecV2.Name()), false}, true
		case grpc.CustomCodecCallOption:
			o.codec, forced = codec{codecV1{option.Codec}, strings.ToLower(option.Codec.String()), false}, true
		}
	}
	switch {
	case name == "":
	case forced:
		o.codec.name = name
	default:
		var err error
		if o.codec, err = registered(name); err != nil {
			return callOptions{}, err
		}
	}
	return o, nil
}

// marshal appends an outgoing message to dst.
func (o *callOptions) marshal(dst []byte, message any) ([]byte, error) {
	out, err := o.codec.append(dst, message)
	if err == nil && len(out)-len(dst) > o.maxSend {
		err = status.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d vs. %d)", len(out)-len(dst), o.maxSend)
	}
	return out, err
}

// unmarshal decodes a received message.
func (o *callOptions) unmarshal(data []byte, message any) error {
	if len(data) > o.maxReceive {
		return status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", len(data), o.maxReceive)
	}
	return o.codec.read(data, message)
}

// A result has the values for options that apply after a call.
type result struct {
	header, trailer boxcarrpc.Metadata
	server          *boxcarrpc.Peer
}

// tell fills in the options of a call at its end.
func (r *result) tell(opts []grpc.CallOption, err error) {
	for _, option := range opts {
		switch option := option.(type) {
		case grpc.HeaderCallOption:
			*option.HeaderAddr = pairsOf(r.header)
		case grpc.TrailerCallOption:
			*option.TrailerAddr = pairsOf(r.trailer)
		case grpc.PeerCallOption:
			if r.server != nil {
				*option.PeerAddr = *peerOf(r.server)
			}
		}
	}
	for _, option := range opts {
		if option, ok := option.(grpc.OnFinishCallOption); ok {
			option.OnFinish(err)
		}
	}
}
