//! The interfaces of grants, as a guest calls them.

use crate::bindings::v1::given::{env, files, http};
use crate::guest::Guest;

impl env::Host for Guest {
    fn get(&mut self, name: String) -> Option<String> {
        self.access.env(&name)
    }
}

impl files::Host for Guest {
    fn read(&mut self, path: String) -> Result<Vec<u8>, files::Failure> {
        self.access.read(&path)
    }
}

impl http::Host for Guest {
    fn fetch(&mut self, request: http::Request) -> Result<http::Response, http::Failure> {
        let response = self.access.fetch(&mut self.budget, request);
        self.deadline.handle_wait();
        response
    }
}
