package bucket

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/cockroachdb/errors"
)

const (
	// defaultRegion signs requests to stores that know no regions.
	defaultRegion = "us-east-1"
	dialTimeout   = 5 * time.Second
	tlsTimeout    = 10 * time.Second
	// idleConnections is how many connections to a store are kept for reuse.
	idleConnections = 32
	idleTimeout     = 90 * time.Second
)

// s3Bucket is a bucket in an S3-compatible object store. It makes one attempt for each
// request: a Client repeats it.
//
// Checksums of the newer S3 API are sent only where an operation requires them, because
// several compatible stores reject them. The signature covers a SHA-256 of the body, so a
// store that checks signatures refuses a damaged body.
type s3Bucket struct {
	client *s3.Client
	bucket string
	prefix string // empty, or ends with a slash

	foreignNames bool // see Options

	transport *http.Transport
}

var _ Bucket = (*s3Bucket)(nil)

func newS3(ctx context.Context, bucket, prefix string, options Options) (*s3Bucket, error) {
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithDefaultRegion(defaultRegion),
		config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
		config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) {
			d.Timeout = dialTimeout
		}).WithTransportOptions(func(t *http.Transport) {
			t.TLSHandshakeTimeout = tlsTimeout
			t.MaxIdleConnsPerHost = idleConnections
			t.IdleConnTimeout = idleTimeout
			t.DisableCompression = true
		})))
	if err != nil {
		return nil, errors.Wrap(err, "bucket: read the AWS configuration")
	}
	// LoadDefaultConfig has added the certificates of AWS_CA_BUNDLE.
	buildable, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return nil, errors.AssertionFailedf("bucket: the AWS configuration has a %T", cfg.HTTPClient)
	}
	transport := buildable.GetTransport()
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.HTTPClient = &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		o.UsePathStyle = options.PathStyle
		if options.Endpoint != "" {
			o.BaseEndpoint = aws.String(options.Endpoint)
		}
	})
	if prefix != "" {
		prefix += "/"
	}
	return &s3Bucket{client: client, bucket: bucket, prefix: prefix, transport: transport, foreignNames: options.ForeignNames}, nil
}

func (b *s3Bucket) closeIdle() { b.transport.CloseIdleConnections() }

func (b *s3Bucket) key(name string) *string { return aws.String(b.prefix + name) }

// Get implements Bucket.
func (b *s3Bucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := checkGet(name, offset); err != nil && (!b.foreignNames || offset < 0) {
		return nil, err
	}
	input := &s3.GetObjectInput{Bucket: &b.bucket, Key: b.key(name)}
	switch {
	case length == 0:
		// A range cannot be empty: ask for the first byte only to learn whether the object exists.
		input.Range = aws.String("bytes=0-0")
	case length > 0:
		input.Range = aws.String(fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	case offset > 0:
		input.Range = aws.String(fmt.Sprintf("bytes=%d-", offset))
	}
	out, err := b.client.GetObject(ctx, input)
	var response *awshttp.ResponseError
	if errors.As(err, &response) && response.HTTPStatusCode() == http.StatusRequestedRangeNotSatisfiable {
		return &sizedReader{Reader: http.NoBody, Closer: http.NoBody}, nil
	}
	if err != nil {
		return nil, b.wrap(err, "get", name)
	}
	size := aws.ToInt64(out.ContentLength)
	if out.ContentLength == nil || size < 0 || length >= 0 && size > max(length, 1) {
		_ = out.Body.Close()
		return nil, b.deviation("get", name, "ignores ranges or sends no Content-Length (%d bytes for %d)", size, length)
	}
	if length == 0 {
		_ = out.Body.Close()
		return &sizedReader{Reader: http.NoBody, Closer: http.NoBody}, nil
	}
	return &sizedReader{out.Body, out.Body, size}, nil
}

// Put implements Bucket.
func (b *s3Bucket) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	if err := checkPut(name, size); err != nil {
		return err
	}
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:        &b.bucket,
		Key:           b.key(name),
		Body:          io.NewSectionReader(body, 0, size),
		ContentLength: &size,
		IfNoneMatch:   aws.String("*"),
	})
	return b.wrap(err, "put", name)
}

// Head implements Bucket.
func (b *s3Bucket) Head(ctx context.Context, name string) (Info, error) {
	if err := checkName(name); err != nil && !b.foreignNames {
		return Info{}, err
	}
	out, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.bucket, Key: b.key(name)})
	if err != nil {
		return Info{}, b.wrap(err, "head", name)
	}
	return Info{Name: name, Size: aws.ToInt64(out.ContentLength)}, nil
}

// List implements Bucket. A store that lists in another order, ignores where the list starts, or
// repeats a page would make callers miss objects, or read them again without end: that is an error.
func (b *s3Bucket) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		input := &s3.ListObjectsV2Input{Bucket: &b.bucket, Prefix: b.key(prefix)}
		if after != "" {
			input.StartAfter = b.key(after)
		}
		for {
			page, err := b.client.ListObjectsV2(ctx, input)
			if err != nil {
				yield(Info{}, b.wrap(err, "list", prefix))
				return
			}
			for _, object := range page.Contents {
				name, inside := strings.CutPrefix(aws.ToString(object.Key), b.prefix)
				// Other programs' objects are not ours to list.
				if !inside || !b.foreignNames && checkName(name) != nil {
					continue
				}
				info := Info{Name: name, Size: aws.ToInt64(object.Size), Modified: aws.ToTime(object.LastModified)}
				switch {
				case name <= after:
					err = b.deviation("list", prefix, "returned %s behind %s: it does not list in the order of the names, which docstore needs", name, after)
				case info.Size < 0:
					err = b.deviation("list", prefix, "states a size of %d bytes for %s", info.Size, name)
				}
				if !yield(info, err) || err != nil {
					return
				}
				after = name
			}
			if !aws.ToBool(page.IsTruncated) || page.NextContinuationToken == nil {
				return
			}
			if aws.ToString(page.NextContinuationToken) == aws.ToString(input.ContinuationToken) {
				yield(Info{}, b.deviation("list", prefix, "answers with the same page again"))
				return
			}
			input.ContinuationToken = page.NextContinuationToken
		}
	}
}

// Delete implements Bucket.
func (b *s3Bucket) Delete(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.bucket, Key: b.key(name)})
	if err = b.wrap(err, "delete", name); errors.Is(err, ErrNotExist) {
		return nil
	}
	return err
}

// String returns the URL.
func (b *s3Bucket) String() string { return "s3://" + path.Join(b.bucket, b.prefix) }

// deviation returns the error of a store that does not answer as S3 does. It names the store,
// which may be set by the environment.
func (b *s3Bucket) deviation(operation, name, format string, args ...any) error {
	where := b.String()
	if endpoint := b.client.Options().BaseEndpoint; endpoint != nil {
		where += " at " + *endpoint
	}
	request := strings.TrimSpace(operation + " " + name)
	return errors.Newf("bucket: %s in %s: the store %s", request, where, fmt.Sprintf(format, args...))
}

// wrap classifies an error of the client.
func (b *s3Bucket) wrap(err error, operation, name string) error {
	if err == nil {
		return nil
	}
	wrapped := errors.Wrapf(err, "bucket: %s %s in %s", operation, name, b)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return wrapped
	}
	var response *awshttp.ResponseError
	if !errors.As(err, &response) || response.HTTPStatusCode() == 0 {
		return b.wrapLocal(wrapped)
	}
	code, status := "", response.HTTPStatusCode()
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	switch {
	case code == "NoSuchBucket":
		return errors.Wrapf(ErrNoBucket, "%s %s: create bucket %s or correct its name (%v)", operation, name, b.bucket, err)
	case code == "RequestTimeTooSkewed":
		return errors.Wrapf(ErrClockSkew, "%s %s in %s: synchronize the clock (%v)", operation, name, b, err)
	case status == http.StatusMovedPermanently, status == http.StatusTemporaryRedirect:
		if region := response.Response.Header.Get("X-Amz-Bucket-Region"); region != "" {
			return errors.Newf("bucket: %s %s in %s: the bucket is in the region %s: set AWS_REGION=%[4]s", operation, name, b, region)
		}
	case status == http.StatusPreconditionFailed:
		return errors.Wrapf(ErrExist, "put %s in %s", name, b)
	case status == http.StatusNotFound:
		return errors.Wrapf(ErrNotExist, "%s %s in %s", operation, name, b)
	case code == "SlowDown", status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return &temporaryError{error: wrapped, slowDown: true}
	case status == http.StatusConflict, code == "RequestTimeout", status >= http.StatusInternalServerError && status != http.StatusNotImplemented:
		// 409 ConditionalRequestConflict: another PUT or DELETE of the object was in progress.
		return &temporaryError{error: wrapped}
	case status == http.StatusForbidden, status == http.StatusUnauthorized, code == "InvalidAccessKeyId", code == "ExpiredToken":
		return errors.Wrapf(ErrDenied, "%s %s in %s: check the credentials and the bucket's policy (%v)", operation, name, b, err)
	case status >= http.StatusOK && status < http.StatusMultipleChoices:
		// The response could not be read to its end.
		return &temporaryError{error: wrapped}
	}
	return wrapped
}

// wrapLocal classifies an error without a response: the request was not answered, or never
// left this machine.
func (b *s3Bucket) wrapLocal(err error) error {
	var credentials interface{ ProviderErrors() []error }
	if errors.As(err, &credentials) || strings.Contains(err.Error(), "get credentials") {
		return errors.Wrapf(ErrDenied, "%s: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (%v)", b, err)
	}
	return &temporaryError{error: err}
}
