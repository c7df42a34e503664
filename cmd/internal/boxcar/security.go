package boxcar

import (
	"errors"

	"github.com/spf13/pflag"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/credentials"
	"docstore/cmd/internal/cli"
)

// security holds the flags of encryption and authentication.
type security struct {
	tls                  bool
	ca, certificate, key string
	tokenFile            string
	insecure             bool
}

func (s *security) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&s.tls, "tls", false, "use TLS, with the system's authorities unless --tls-ca is given")
	flags.StringVar(&s.ca, "tls-ca", "", "authorities (PEM) of server certificates; implies --tls")
	flags.StringVar(&s.certificate, "tls-cert", "", "client certificate (PEM); implies --tls")
	flags.StringVar(&s.key, "tls-key", "", "key of --tls-cert (PEM)")
	flags.StringVar(&s.tokenFile, "token-file", "", "file with the token for servers")
	flags.BoolVar(&s.insecure, "insecure", false, "use plain text to other hosts")
}

// check reports conflicting flags.
func (s *security) check() error {
	var problems []error
	if (s.certificate == "") != (s.key == "") {
		problems = append(problems, cli.Usagef("--tls-cert and --tls-key go together; give both"))
	}
	if s.insecure && s.encrypted() {
		problems = append(problems, cli.Usagef("--insecure contradicts --tls, --tls-ca and --tls-cert; remove it"))
	}
	if s.insecure && s.tokenFile != "" {
		problems = append(problems, cli.Usagef("--insecure contradicts --token-file: a token is not sent in plain text; give --tls-ca instead"))
	}
	return errors.Join(problems...)
}

func (s *security) encrypted() bool { return s.tls || s.ca != "" || s.certificate != "" }

// apply reads the files and sets the options of a pool.
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
