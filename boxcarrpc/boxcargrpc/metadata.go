package boxcargrpc

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
)

// binarySuffix ends the keys whose values may hold any bytes.
const binarySuffix = "-bin"

// appendPairs appends the pairs of md that a program may send.
func appendPairs(m boxcarrpc.Metadata, md metadata.MD) boxcarrpc.Metadata {
	for key, values := range md {
		if reserved(key) {
			continue
		}
		for _, value := range values {
			m = m.Append(key, value)
		}
	}
	return m
}

// pairsOf returns the pairs of m, nil if it has none.
func pairsOf(m boxcarrpc.Metadata) metadata.MD {
	if len(m) == 0 {
		return nil
	}
	md := metadata.MD{}
	for key, value := range m.All() {
		md[key] = append(md[key], value)
	}
	return md
}

// reserved reports whether a key is not for programs: gRPC does not send it
// either.
func reserved(key string) bool {
	switch key {
	case "content-type", "user-agent", "grpc-message-type", "grpc-encoding",
		"grpc-message", "grpc-status", "grpc-timeout", "te":
		return true
	}
	return strings.HasPrefix(key, ":")
}

// validate reports what gRPC would not send either.
func validate(md metadata.MD) error {
	for key, values := range md {
		if key == "" {
			return status.Error(codes.Internal, "there is an empty key in the metadata")
		}
		for _, c := range []byte(key) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' && key[0] != ':' {
				return status.Errorf(codes.Internal, "metadata key %q has characters other than 0-9 a-z - _ .", key)
			}
		}
		if strings.HasSuffix(key, binarySuffix) {
			continue
		}
		for _, value := range values {
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
				return status.Errorf(codes.Internal, "metadata key %q has a value that is not printable ASCII; such values need a key that ends in -bin", key)
			}
		}
	}
	return nil
}
