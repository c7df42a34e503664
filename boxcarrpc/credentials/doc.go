// Package credentials keeps certificates and tokens in files, for boxcarrpc's
// options: what changes in the files holds for the next connection, without a
// restart.
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
// Certificates, keys and authorities are PEM. A certificate may be followed by the
// intermediate ones, and a file of authorities may hold many, as is needed while
// one takes another's place.
//
// A client's token is the only line of its file. A server's file of tokens has a
// line for each, a name and the token, with blanks between them; a name may have
// several, as is needed while one takes another's place. Empty lines and those that
// begin with # are passed over. A token has 16 to 8,192 bytes without blanks:
//
//	# name        token
//	frontend-a    5f0c9d3be1a94f0fb1f7c0a1
//	frontend-b    e2b7d0c64a8a4f1d9e55b3aa
//
// # Changes
//
// Files are looked at when a connection begins, at most once a second: there is no
// goroutine. If one has changed all are read again; if that fails, as in the moment
// between the certificate and its key, what was good before goes on to hold, the
// log says so, and the next connection tries again.
//
// Connections that exist go on with the certificates that they began with. Those of
// a client whose token is gone from the file, or whose certificate has expired, are
// told to go away within 11 s of what they send: see ServerOptions.Authenticate.
//
// # Concurrency
//
// All functions that this package returns are safe for concurrent use.
package credentials
