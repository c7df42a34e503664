package boxcargrpc

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
)

// binarySuffix is the suffix of keys with binary values.
const binarySuffix = "-bin"

// appendPairs appends the pairs of md whose keys are not reserved.
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

// pairsOf returns the pairs of m, or nil.
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

// reserved reports whether a key is reserved, as in gRPC.
func reserved(key string) bool {
	switch key {
	case "content-type", "user-agent", "grpc-message-type", "grpc-encoding",
		"grpc-message", "grpc-status", "grpc-timeout", "te":
		return true
	}
	return strings.HasPrefix(key, ":")
}

// validate returns an error for metadata that gRPC would reject.
func validate(md metadata.MD) error {
	for key, values := range md {
		if key == "" {
			return status.Error(codes.Internal, "metadata has an empty key")
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
				return status.Errorf(codes.Internal, "metadata key %q has a value that is not printable ASCII; use a key with the suffix -bin", key)
			}
		}
	}
	return nil
}
