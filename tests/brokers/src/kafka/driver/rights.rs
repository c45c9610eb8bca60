//! Who may do what, on a cluster with an authorizer.

use kafka_wire::{CreateAclsRequest, DeleteAclsRequest, create_acls_request, delete_acls_request};

use super::{Driver, only};
use crate::kafka::connection::{CallError, accepted};

const LITERAL: i8 = 3;
const ALLOW: i8 = 3;
const ANY_HOST: &str = "*";

/// What a right is to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(i8)]
pub enum Resource {
    /// A topic.
    Topic = 2,
    /// A group of any kind.
    Group = 3,
}

/// What a right lets somebody do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(i8)]
pub enum Operation {
    /// Take records, or be a member; includes describing.
    Read = 3,
    /// Append records.
    Write = 4,
    /// Delete it, or a group's offsets.
    Delete = 6,
    /// See that it is there.
    Describe = 8,
    /// See its settings.
    DescribeConfigs = 10,
    /// Change its settings.
    AlterConfigs = 11,
}

/// One right of one user.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Acl<'a> {
    /// The user's name; of a client certificate, `CN=` and its common name.
    pub user: &'a str,
    /// What.
    pub operation: Operation,
    /// To what kind of thing.
    pub resource: Resource,
    /// Its whole name, or `*` for all.
    pub name: &'a str,
}

impl Driver {
    /// Gives rights; in effect within 300 ms, for connections that there are too.
    ///
    /// # Errors
    /// When the broker refuses, as with 54 without an authorizer.
    pub async fn allow(&self, acls: &[Acl<'_>]) -> Result<(), CallError> {
        const VERSION: i16 = 3;
        let mut request = CreateAclsRequest::default();
        for acl in acls {
            let mut creation = create_acls_request::AclCreation::default();
            creation.resource_type = acl.resource as i8;
            creation.resource_name = acl.name.into();
            creation.resource_pattern_type = LITERAL;
            creation.principal = principal(acl).into();
            creation.host = ANY_HOST.into();
            creation.operation = acl.operation as i8;
            creation.permission_type = ALLOW;
            request.creations.push(creation);
        }
        for result in self.call_any(&request, VERSION).await?.results {
            accepted(|| format!("allowing {acls:?}"), result.error_code, result.error_message.as_ref())?;
        }
        Ok(())
    }

    /// Takes a right back, and says whether it was there.
    ///
    /// # Errors
    /// When the broker refuses, as with 54 without an authorizer.
    pub async fn withdraw(&self, acl: &Acl<'_>) -> Result<bool, CallError> {
        const VERSION: i16 = 3;
        let mut filter = delete_acls_request::DeleteAclsFilter::default();
        filter.resource_type_filter = acl.resource as i8;
        filter.resource_name_filter = Some(acl.name.into());
        filter.pattern_type_filter = LITERAL;
        filter.principal_filter = Some(principal(acl).into());
        filter.host_filter = Some(ANY_HOST.into());
        filter.operation = acl.operation as i8;
        filter.permission_type = ALLOW;
        let mut request = DeleteAclsRequest::default();
        request.filters = vec![filter];
        let result = only(self.call_any(&request, VERSION).await?.filter_results, "DeleteAclsRequest")?;
        accepted(|| format!("withdrawing {acl:?}"), result.error_code, result.error_message.as_ref())?;
        Ok(!result.matching_acls.is_empty())
    }
}

fn principal(acl: &Acl<'_>) -> String {
    format!("User:{}", acl.user)
}
