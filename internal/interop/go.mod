module github.com/storageapi/storageapi/internal/interop

go 1.26.0

require (
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1
	github.com/storageapi/storageapi v0.0.0
	github.com/svix/svix-webhooks v1.44.0
)

require gopkg.in/validator.v2 v2.0.1 // indirect

replace github.com/storageapi/storageapi => ../..
