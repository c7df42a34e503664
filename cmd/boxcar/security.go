package main

import (
	"errors"

	"github.com/spf13/pflag"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/credentials"
	"docstore/cmd/internal/cli"
)

// security is the flags that say how servers are spoken to.
type security struct {
	tls                  bool
	ca, certificate, key string
	tokenFile            string
	insecure             bool
}

func (s *security) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&s.tls, "tls", false, "speak TLS, and go by the system's authorities if there is no --tls-ca")
	flags.StringVar(&s.ca, "tls-ca", "", "authorities (PEM) that servers must have a certificate of; implies --tls")
	flags.StringVar(&s.certificate, "tls-cert", "", "certificate (PEM) to show to servers; implies --tls")
	flags.StringVar(&s.key, "tls-key", "", "key of the certificate (PEM)")
	flags.StringVar(&s.tokenFile, "token-file", "", "file with the token to show to servers")
	flags.BoolVar(&s.insecure, "insecure", false, "speak plain text to other hosts")
}

// check reports flags that do not go together.
func (s *security) check() error {
	var problems []error
	if (s.certificate == "") != (s.key == "") {
		problems = append(problems, cli.Usagef("--tls-cert and --tls-key go together; give both"))
	}
	if s.insecure && s.encrypted() {
		problems = append(problems, cli.Usagef("--insecure contradicts --tls, --tls-ca and --tls-cert; leave it out"))
	}
	if s.insecure && s.tokenFile != "" {
		problems = append(problems, cli.Usagef("--insecure contradicts --token-file: a token is not sent in plain text; give --tls-ca instead"))
	}
	return errors.Join(problems...)
}

func (s *security) encrypted() bool { return s.tls || s.ca != "" || s.certificate != "" }

// apply reads the files for a pool.
func (s *security) apply(o *boxcarrpc.PoolOptions) (err error) {
	o.Insecure = s.insecure
	if s.encrypted() {
		o.TLS, err = credentials.ClientTLS(credentials.Files{CA: s.ca, Certificate: s.certificate, Key: s.key}, o.Logger)
		if err != nil {
			return err
		}
	}
	if s.tokenFile != "" {
		o.Token, err = credentials.Token(s.tokenFile, o.Logger)
	}
	return err
}
