// Package contract tests that the API matches its OpenAPI document. It uses independent tools:
// kin-openapi validates every request and response, and redocly lints the document. It is a
// separate module, so that hosts that import the library do not get these tools.
//
//   - TestContract calls every operation, once with success and once for each failure that a test
//     can provoke, on a host with a file and a receiver behind TLS. It fails if a response differs
//     from the document, or if no response had one of the documented statuses.
//   - TestContractOfAHost does the same for a host with its own vocabulary and document.
//   - TestWalk calls operations with valid and invalid values made from the document, and with
//     undocumented input. It prints its seed. -seed repeats a run, -requests sets the number of
//     requests.
//   - TestLint runs redocly with its recommended rules. It needs Node.js and the package pinned in
//     package-lock.json; run "npm ci" in this directory. Without them it fails if the environment
//     variable CI is set, and is skipped otherwise.
//
// A test in the library's own module compares the document's routes with the code.
//
// kin-openapi reads OpenAPI 3.1 and validates with JSON Schema 2020-12, so the tests use the
// document almost unchanged. First, they move x-otherwise to the components, because kin-openapi
// does not follow references in extensions. Second, they close objects without
// additionalProperties, so that they detect undocumented fields in responses. For clients these
// objects are open, because later versions may add fields.
package contract
