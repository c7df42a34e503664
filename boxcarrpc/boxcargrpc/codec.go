package boxcargrpc

import (
	"reflect"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
)

const (
	// protoPackage is the package of grpc-go's protobuf codec, which registers itself.
	protoPackage = "google.golang.org/grpc/encoding/proto"
	protoName    = "proto"
	// contentTypeKey is the metadata key of a codec other than protobuf, as in gRPC.
	contentTypeKey    = "content-type"
	contentTypePrefix = "application/grpc+"
)

// A codec marshals and unmarshals messages. It is registered with grpc-go or given as a
// call option.
type codec struct {
	encoding.CodecV2
	name   string // lower case
	direct bool   // grpc-go's protobuf codec, which can be bypassed
}

// registered returns the codec that is registered under a name.
func registered(name string) (codec, error) {
	if v1 := encoding.GetCodec(name); v1 != nil {
		return codec{codecV1{v1}, name, false}, nil
	}
	v2 := encoding.GetCodecV2(name)
	if v2 == nil {
		return codec{}, status.Errorf(codes.Internal, "no codec registered for content-subtype %s", name)
	}
	t := reflect.TypeOf(v2)
	return codec{v2, name, t.Kind() == reflect.Pointer && t.Elem().PkgPath() == protoPackage}, nil
}

// protobuf returns the default codec. A program may have replaced grpc-go's in an init
// function.
func protobuf() codec {
	c, err := registered(protoName)
	if err != nil {
		panic("boxcargrpc: " + err.Error()) // grpc-go registers it
	}
	return c
}

// append appends the bytes of a message.
func (c codec) append(dst []byte, message any) ([]byte, error) {
	if message == nil {
		return dst, nil
	}
	if m, ok := message.(proto.Message); ok && c.direct {
		out, err := proto.MarshalOptions{}.MarshalAppend(dst, m)
		if err != nil {
			return dst, status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
		}
		return out, nil
	}
	data, err := c.Marshal(message)
	if err != nil {
		return dst, status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	defer data.Free()
	dst = slices.Grow(dst, data.Len())
	for _, buffer := range data {
		dst = append(dst, buffer.ReadOnlyData()...)
	}
	return dst, nil
}

// read unmarshals a message, which does not retain data.
func (c codec) read(data []byte, message any) error {
	var err error
	if m, ok := message.(proto.Message); ok && c.direct {
		err = proto.Unmarshal(data, m)
	} else {
		// Other codecs may retain the data.
		err = c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(slices.Clone(data))}, message)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// announce appends the metadata pair with the codec.
func (c codec) announce(m boxcarrpc.Metadata) boxcarrpc.Metadata {
	if c.name == protoName {
		return m
	}
	return m.Append(contentTypeKey, contentTypePrefix+c.name)
}

// announced returns the codec of a request, by default standard.
func announced(md metadata.MD, standard codec) (codec, error) {
	values := md[contentTypeKey]
	if len(values) == 0 {
		return standard, nil
	}
	name, ok := strings.CutPrefix(values[0], contentTypePrefix)
	if !ok {
		return codec{}, status.Errorf(codes.Internal, "content-type %q is not a gRPC content type", values[0])
	}
	return registered(name)
}

// A codecV1 adapts a codec with the older interface.
type codecV1 struct{ v1 }

type v1 interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

func (codecV1) Name() string { return "" }

func (c codecV1) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.v1.Marshal(v)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(data)}, nil
}

func (c codecV1) Unmarshal(data mem.BufferSlice, v any) error {
	return c.v1.Unmarshal(data.Materialize(), v)
}
