// Package credentials reads certificates and tokens from files for the options of
// boxcarrpc. New connections use the current files, without a restart.
//
//	config, err := credentials.ServerTLS(credentials.Files{
//		Certificate: "be-1.crt", Key: "be-1.key", CA: "clients-ca.crt",
//	}, nil)
//	server := boxcarrpc.NewServer(handler, &boxcarrpc.ServerOptions{TLS: config})
//
//	config, err := credentials.ClientTLS(credentials.Files{CA: "ca.crt"}, nil)
//	token, err := credentials.Token("frontend.token", nil)
//	pool, err := boxcarrpc.NewPool(source, &boxcarrpc.PoolOptions{TLS: config, Token: token})
//
// # Files
//
// Certificates, keys and authorities are PEM. A certificate may be followed by its
// intermediate certificates. A file of authorities may have several, for example
// during a rotation.
//
// A client's token file has one line, the token. Each line of a server's token file has
// a client's name and a token, separated by spaces or tabs. A name with blanks or quotes is
// quoted. A name may have several tokens, for example during a rotation. Empty lines and
// lines that begin with # are ignored. A token has 16 to 8,192 bytes without white space:
//
//	# name        token
//	frontend-a    5f0c9d3be1a94f0fb1f7c0a1
//	"front end"   e2b7d0c64a8a4f1d9e55b3aa
//
// Each line of a file of permissions (OpenAccess) has a client's name, quoted likewise, and
// the collections that it may use; * stands for all identified clients, and for all
// collections:
//
//	# client      collections
//	frontend-a    jobs resumes
//	operator      *
//
// # Changes
//
// When a connection begins, and at most once a second, the files are checked for
// changes; there is no goroutine. If one has changed, all are read again. If that fails
// (for example because the new certificate is written and its key is not), the previous
// values stay in use, the failure is logged, and the next connection tries again.
//
// A server also checks the files once a second while it has connections, and disconnects
// clients whose authority or token was removed, or whose certificate has expired, within
// 11 s: see ServerOptions.Authenticate. Other connections keep their certificates.
//
// # Concurrency
//
// All functions that this package returns are safe for concurrent use.
package credentials
