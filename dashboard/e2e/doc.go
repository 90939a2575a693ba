// Package e2e tests package dashboard in a browser. The tests drive Chromium through every flow,
// with a host that stores its data in a file and an HTTPS receiver, and check accessibility with
// axe-core. The package is a separate module, so that hosts that import the library do not get
// these dependencies.
//
// The tests need Chromium ("apt-get install chromium", or a browser named by the environment
// variable CHROMIUM) and the packages pinned in package-lock.json; run "npm ci" in this directory.
// Without them they fail if the environment variable CI is set, and are skipped otherwise.
//
//	go test . -run TestScreenshots -screenshots # replaces the pictures in docs/dashboard
//	go test . -pictures /tmp                    # saves pictures of all pages there for inspection
package e2e
